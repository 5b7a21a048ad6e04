//! The in-Space daemon.
fn main() {}
