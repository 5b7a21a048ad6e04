//! guestd over a real socket, in this process and as a process of its own.

#![allow(
    clippy::unwrap_used,
    clippy::similar_names,
    reason = "tests, whose helpers may fail the test too"
)]

mod filesystem;
mod plain;
mod process;
mod space;
mod system;
