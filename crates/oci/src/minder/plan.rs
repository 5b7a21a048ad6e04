//! What the minder is told, and what it reports.
//!
//! Each message is one JSON object behind its length (u32, little endian), over the socket that
//! the minder inherits. It may carry a descriptor.

use std::io::{self, IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use airlock_model::NetConfig;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{CgroupMount, Ids, Limits};

/// Largest message in bytes.
const MAX_MESSAGE_BYTES: usize = 256 * 1024;

/// One container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The OCI runtime's program.
    pub runtime: PathBuf,
    /// The Space's host name.
    pub hostname: String,
    /// Environment of its first program.
    pub env: Vec<(String, String)>,
    /// The image's folder, read-only.
    pub lower: PathBuf,
    /// What the Space changed, made if it is missing.
    pub upper: PathBuf,
    /// A folder that overlayfs needs beside it.
    pub work: PathBuf,
    /// Which ids it has.
    pub ids: Ids,
    /// Its data network; `None`: loopback alone.
    pub network: Option<NetConfig>,
    /// Its place among the host's cgroups, and its limits; `None`: no limits.
    pub cgroup: Option<(String, Limits)>,
    /// What it sees of it.
    pub cgroup_mount: CgroupMount,
    /// Hard limit of open files.
    pub open_files: u64,
    /// CPUs of the host.
    pub host_cpus: u32,
    /// Descriptors that the minder inherited.
    pub fds: Fds,
}

/// Numbers of inherited descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fds {
    /// The lane's memory.
    pub lane: RawFd,
    /// The socket that guestd listens on.
    pub listener: RawFd,
    /// guestd's program.
    pub guestd: RawFd,
    /// Takes what the Space prints.
    pub console: RawFd,
}

/// The answer to [`Event::WantsIds`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapped {}

/// What the minder reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Its user namespace is there; the ids are to be mapped now.
    WantsIds,
    /// The first process of the Space's processes: when it is killed, none of them is left.
    Forked {
        /// Its pid on the host.
        pid: u32,
    },
    /// The data network's interface; the message carries its descriptor.
    Network,
    /// The Space has a copy of the image's files of its own.
    Copied {
        /// Why no layer could be laid over them.
        because: String,
    },
    /// The container runs.
    Started,
    /// It does not.
    Failed {
        /// The host lacks something or forbids it.
        unsupported: bool,
        /// What happened.
        message: String,
        /// What to do about it.
        hint: String,
    },
    /// It ended.
    Ended {
        /// How.
        how: String,
    },
}

/// Sends `message`, with `descriptor` if there is one.
pub fn send<M: Serialize>(
    socket: &UnixStream,
    message: &M,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend(body);
    let fds: Vec<_> = descriptor.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    let mut sent = rustix::net::sendmsg(
        socket.as_fd(),
        &[IoSlice::new(&frame)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    while sent < frame.len() {
        sent += rustix::net::send(socket.as_fd(), &frame[sent..], SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Receives one message.
pub fn receive<M: DeserializeOwned>(mut socket: &UnixStream) -> io::Result<M> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_MESSAGE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    socket.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole() {
        let (a, b) = UnixStream::pair().unwrap();
        let event = Event::Forked { pid: 7 };
        send(&a, &event, Some(a.as_fd())).unwrap();
        send(&a, &Event::Started, None).unwrap();
        assert_eq!(receive::<Event>(&b).unwrap(), event);
        assert_eq!(receive::<Event>(&b).unwrap(), Event::Started);
        rustix::net::send(&a, &u32::MAX.to_le_bytes(), SendFlags::empty()).unwrap();
        assert!(receive::<Event>(&b).is_err());
    }
}
