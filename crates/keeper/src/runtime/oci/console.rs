//! What a container prints, on its way to the console log.
//!
//! Through a pipe, so that nothing in the Space holds a descriptor of a file of the host.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

/// Bytes taken from the pipe at once.
const BUFFER_BYTES: usize = 16 * 1024;

/// Copies to `log` what is written to the returned end, until all copies of that are closed.
pub(super) fn start(mut log: File) -> io::Result<OwnedFd> {
    let (reader, writer) = io::pipe()?;
    let reader = OwnedFd::from(reader);
    rustix::io::ioctl_fionbio(&reader, true)?;
    let mut reader = pipe::Receiver::from_owned_fd(reader)?;
    tokio::spawn(async move {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Ok(read @ 1..) = reader.read(&mut buffer).await {
            // A full disk costs the log, not the Space: a pipe that nobody empties would stop it.
            if let Err(error) = log.write_all(&buffer[..read]) {
                tracing::debug!(%error, "a part of the console is lost");
            }
        }
    });
    Ok(writer.into())
}
