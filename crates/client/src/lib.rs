//! Airlock SDK: make Spaces, move files in and out, run commands

mod guest_path;
pub mod transfer;

pub use guest_path::GuestPath;
