//! Chores of the Airlock workspace.
fn main() {}
