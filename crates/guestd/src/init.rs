//! guestd as the first process of a machine.

use std::process::ExitCode;

/// Boots.
pub fn run() -> ExitCode {
    ExitCode::FAILURE
}

/// Serves.
pub fn serve_child(_settings: i32) -> ExitCode {
    ExitCode::FAILURE
}
