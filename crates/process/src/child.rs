//! What happens in the child between fork and exec: the one place that needs `unsafe`.
#![expect(
    unsafe_code,
    reason = "a hook between fork and exec, and descriptors named by number"
)]

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::FdFlags;
use tokio::process::Command;

/// Makes the child leave the caller's session, die with its parent's thread, and keep only
/// `keep` (besides stdin, stdout and stderr) open across exec.
pub(super) fn prepare(command: &mut Command, keep: Vec<RawFd>) {
    let parent = rustix::process::getpid();
    let hook = move || enter(parent, &keep);
    // SAFETY: the hook runs in a forked child of a process with threads, so it must not allocate
    // or take locks. It makes plain system calls through rustix, on values made before the fork
    // and on buffers on its own stack.
    unsafe {
        command.pre_exec(hook);
    }
}

fn enter(parent: rustix::process::Pid, keep: &[RawFd]) -> io::Result<()> {
    rustix::process::setsid()?;
    die_with_parent(parent)?;
    close_all_others(keep)?;
    for &fd in keep {
        // SAFETY: the caller owns `fd` until the child was spawned, so it is open here.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        rustix::io::fcntl_setfd(fd, FdFlags::empty())?;
    }
    Ok(())
}

/// The kernel forgets the death signal when the user changes, so this runs after that.
#[cfg(target_os = "linux")]
fn die_with_parent(parent: rustix::process::Pid) -> io::Result<()> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() == Some(parent) {
        Ok(())
    } else {
        // The parent died before the signal was set.
        Err(rustix::io::Errno::CHILD.into())
    }
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "the same shape as on Linux")]
fn die_with_parent(_parent: rustix::process::Pid) -> io::Result<()> {
    Ok(())
}

/// Marks every descriptor close-on-exec. Ours all are from birth; this catches what a library
/// or our own parent forgot.
#[cfg(target_os = "linux")]
fn close_all_others(keep: &[RawFd]) -> io::Result<()> {
    use std::mem::MaybeUninit;
    use std::os::fd::AsRawFd;

    use rustix::fs::{Mode, OFlags, RawDir};

    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::<u8>::uninit(); 2048];
    let mut entries = RawDir::new(&folder, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let Some(number) = std::str::from_utf8(name)
            .ok()
            .and_then(|n| n.parse::<RawFd>().ok())
        else {
            continue;
        };
        if number <= 2 || number == folder.as_raw_fd() || keep.contains(&number) {
            continue;
        }
        // SAFETY: the kernel just listed `number` as open, and this child has one thread.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC)?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "the same shape as on Linux")]
fn close_all_others(_keep: &[RawFd]) -> io::Result<()> {
    Ok(())
}
