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

/// Closes every descriptor from number `first` on.
///
/// Only for the very start of the program, while nothing in it owns a descriptor.
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: the call takes integers, and by the caller's promise nobody's descriptor is closed.
    if unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
