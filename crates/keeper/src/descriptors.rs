//! Closing what a keeper inherited.
//!
//! A keeper that kept, say, the write end of the pipe in `airlock spaces create | cat` would keep
//! `cat` waiting for as long as the Space lives.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Closes every descriptor above the three standard ones.
///
/// Only to be called while nothing else in the process owns a descriptor.
pub(crate) fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let open: Vec<RawFd> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for fd in open {
        // The folder's own descriptor was in the list and is closed by now.
        if std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok() {
            close(fd);
        }
    }
}

#[expect(
    unsafe_code,
    reason = "descriptors that were inherited have no owner to drop"
)]
fn close(fd: RawFd) {
    // SAFETY: the caller runs before anything in this process owns a descriptor, so nobody else
    // closes or uses this one.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}
