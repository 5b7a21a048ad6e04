//! The in-Space daemon: files, processes, the lane worker and init
//!
//! A library with a thin binary, so that tests build the same server in their own process.

pub mod paths;
pub mod publish;
pub mod users;
