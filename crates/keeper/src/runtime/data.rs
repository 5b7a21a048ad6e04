//! The data network of a Space, whatever its kind.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use airlock_net::passt::{self, HostNetwork, Passt, PasstError};

use super::LaunchError;

/// Hardware address: each Space has a network of its own, so they can all be the same.
pub(super) const DATA_MAC: &str = "52:54:00:61:6c:02";

/// Starts passt; what it says goes to the log at `log_path`.
pub(super) fn start(log_path: &Path) -> Result<Passt, LaunchError> {
    let program = passt::find().map_err(failed)?;
    let log = open_log(log_path).map_err(|source| LaunchError::Host {
        what: "open passt's log",
        source,
    })?;
    passt::start(&program, &HostNetwork::read(), DATA_MAC, Some(log)).map_err(failed)
}

/// Why there is no network, with what to do about it.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that map_err wants"
)]
pub(super) fn failed(error: PasstError) -> LaunchError {
    let mut reason = error.to_string();
    if let Some(source) = error.source() {
        reason = format!("{reason}: {source}");
    }
    LaunchError::Network {
        reason,
        hint: error.hint().to_owned(),
    }
}

/// A log of the Space's, appended to and readable by its owner alone.
pub(super) fn open_log(path: &Path) -> std::io::Result<File> {
    File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}
