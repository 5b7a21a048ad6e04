//! Descriptors that the async runtime watches.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Has the runtime watch `fd` for `interest`.
pub(crate) fn watched(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` always names the same open descriptor, and the watcher owns it until
    // it has stopped watching.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}
