//! `cua.env.v1.ProcessService`.

use std::path::PathBuf;
use std::time::Duration;

use airlock_wire::{Fault, FaultKind};

/// Output kept for whoever attaches later, in bytes, unless a command asks for another size.
pub const DEFAULT_SCROLLBACK_BYTES: usize = 8 * 1024 * 1024;

/// The commands that were started.
#[derive(Debug)]
pub struct Processes {}

impl Processes {
    pub(crate) fn new(_cgroup: Option<PathBuf>) -> Self {
        Self {}
    }
    pub(crate) fn running(&self) -> usize {
        0
    }
    pub(crate) async fn shut_down(&self, _grace: Duration) {}
}

/// Refuses what cannot be in an environment.
pub(crate) fn check_env(key: &str, value: &str) -> Result<(), Fault> {
    if key.is_empty() || key.contains(['=', '\0']) || value.contains('\0') {
        let message = format!("{key:?} cannot be set in an environment");
        return Err(Fault::new(FaultKind::InvalidArgument, message));
    }
    Ok(())
}
