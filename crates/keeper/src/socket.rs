//! The keeper's listening socket.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use crate::protocol::short_path;

/// A listening socket that is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct KeeperSocket {
    path: PathBuf,
}

impl KeeperSocket {
    /// Listens at `path`, replacing what a dead keeper left there.
    ///
    /// The caller holds the Space's lock, so what is there belongs to nobody.
    pub(crate) fn bind(path: &Path) -> io::Result<(Self, UnixListener)> {
        match fs_err::remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let (_folder, short) = short_path(path)?;
        let listener = UnixListener::bind(short)?;
        // The folder is private already; this is the second lock on the same door.
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok((
            Self {
                path: path.to_owned(),
            },
            listener,
        ))
    }
}

impl Drop for KeeperSocket {
    fn drop(&mut self) {
        if let Err(error) = fs_err::remove_file(&self.path) {
            tracing::debug!(%error, "cannot remove the socket");
        }
    }
}
