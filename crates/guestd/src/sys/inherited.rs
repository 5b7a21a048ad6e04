//! Descriptors that the parent left open for this process.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::io::FdFlags;

/// Takes over descriptor `fd`, which the parent named, and keeps it from any child.
pub(crate) fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: -1 is excluded above; a number that is not open makes the call below fail, and the
    // borrow ends with it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    // SAFETY: it is open, as the call above proved, and nobody else in this process has it: the
    // parent named it for this purpose, and each is adopted once, at the start.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
