//! Pipes and terminals between guestd and a command, without blocking.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::sys::watch::watched;

/// guestd's end.
#[derive(Debug)]
pub(super) struct End(AsyncFd<OwnedFd>);

impl End {
    fn new(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        Ok(Self(watched(fd, interest)?))
    }

    /// Reads what is there; zero at the end.
    pub(super) async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self
            .0
            .async_io(Interest::READABLE, |fd| {
                match rustix::io::read(fd, &mut *buf) {
                    // So a terminal says that the last program has closed it.
                    Err(Errno::IO) => Ok(0),
                    result => Ok(result?),
                }
            })
            .await?;
        Ok(read)
    }

    /// Writes all of `data`.
    pub(super) async fn write_all(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let written = self
                .0
                .async_io(Interest::WRITABLE, |fd| Ok(rustix::io::write(fd, data)?))
                .await?;
            data = &data[written..];
        }
        Ok(())
    }

    /// Bytes that wait to be read.
    pub(super) fn waiting(&self) -> u64 {
        rustix::io::ioctl_fionread(self.0.as_fd()).unwrap_or(0)
    }

    /// Sets the size of a terminal.
    pub(super) fn resize(&self, size: Winsize) -> io::Result<()> {
        Ok(tcsetwinsize(self.0.as_fd(), size)?)
    }
}

/// A pipe that guestd reads, and the command's end.
pub(super) fn readable() -> io::Result<(End, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((End::new(read, Interest::READABLE)?, write))
}

/// A pipe that guestd writes, and the command's end.
pub(super) fn writable() -> io::Result<(End, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((End::new(write, Interest::WRITABLE)?, read))
}

/// A terminal, and the command's end.
pub(super) fn terminal(size: Winsize) -> io::Result<(End, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let theirs = ioctl_tiocgptpeer(&ours, flags)?;
    tcsetwinsize(&ours, size)?;
    Ok((
        End::new(ours, Interest::READABLE | Interest::WRITABLE)?,
        theirs,
    ))
}
