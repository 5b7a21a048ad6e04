//! The in-Space daemon: files, processes, the lane worker and init
//!
//! A library with a thin binary, so that tests build the same server in their own process.

pub mod cli;
pub mod console;
mod convert;
pub mod filesystem;
pub mod init;
pub mod lane_service;
pub mod paths;
pub mod process;
pub mod publish;
pub mod serve;
pub mod server;
mod small_file;
pub mod state;
#[expect(
    unsafe_code,
    reason = "calls without a safe form, each with its own proof"
)]
mod sys;
pub mod system;
pub mod users;
