//! Messages with descriptors over a unix stream socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use super::MAX_MESSAGE_BYTES;

/// Why a message could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The other side closed the connection.
    #[error("the other side closed the connection")]
    Closed,
    /// The socket failed.
    #[error("the socket failed")]
    Io(#[from] io::Error),
    /// A message is longer than [`MAX_MESSAGE_BYTES`].
    #[error("a message of {0} bytes, at most {MAX_MESSAGE_BYTES} are allowed")]
    TooLong(usize),
    /// A message is not what the protocol says.
    #[error("a message that the protocol does not know")]
    Malformed(#[from] serde_json::Error),
}

/// One end of a connection between client and keeper.
#[derive(Debug)]
pub struct MessageStream {
    socket: UnixStream,
}

impl MessageStream {
    /// Speaks the protocol over `socket`.
    pub fn new(socket: UnixStream) -> Self {
        Self { socket }
    }

    /// Connects to the socket at `path`, which may be longer than the 108 bytes that fit in a
    /// socket address: the folder is opened and the socket named through `/proc/self/fd`.
    pub async fn connect(path: &Path) -> io::Result<Self> {
        let (_folder, short) = short_path(path)?;
        Ok(Self::new(UnixStream::connect(short).await?))
    }

    /// The uid of the process at the other end.
    pub fn peer_uid(&self) -> io::Result<u32> {
        Ok(self.socket.peer_cred()?.uid())
    }

    /// Sends `message`, with `descriptor` if there is one.
    pub async fn send<M: Serialize>(
        &mut self,
        message: &M,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), TransportError> {
        let body = serde_json::to_vec(message)?;
        if body.len() > MAX_MESSAGE_BYTES {
            return Err(TransportError::TooLong(body.len()));
        }
        let mut frame = Vec::with_capacity(4 + body.len());
        frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
        frame.extend_from_slice(&body);
        let sent = match descriptor {
            None => 0,
            Some(fd) => {
                self.socket
                    .async_io(Interest::WRITABLE, || {
                        send_with_fd(&self.socket, &frame, fd)
                    })
                    .await?
            }
        };
        self.socket.write_all(&frame[sent..]).await?;
        Ok(())
    }

    /// Receives one message and the descriptor that came with it, if any.
    pub async fn receive<M: DeserializeOwned>(
        &mut self,
    ) -> Result<(M, Option<OwnedFd>), TransportError> {
        // The descriptor comes with the first byte of its message, and messages alternate with
        // their answers, so reading the length alone never swallows part of a later message.
        let mut length = [0u8; 4];
        let mut descriptor = None;
        let mut filled = 0;
        while filled < length.len() {
            let (read, fd) = self
                .socket
                .async_io(Interest::READABLE, || {
                    receive_with_fd(&self.socket, &mut length[filled..])
                })
                .await?;
            if read == 0 {
                return Err(TransportError::Closed);
            }
            filled += read;
            descriptor = fd.or(descriptor);
        }
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_MESSAGE_BYTES {
            return Err(TransportError::TooLong(length));
        }
        let mut body = vec![0; length];
        self.socket
            .read_exact(&mut body)
            .await
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => TransportError::Closed,
                _ => TransportError::Io(error),
            })?;
        Ok((serde_json::from_slice(&body)?, descriptor))
    }

    /// Completes when the other side closes the connection or says anything more.
    pub async fn closed(&mut self) {
        let mut byte = [0u8; 1];
        // Whatever comes, the peer broke the protocol or is gone; both end the connection.
        let _ = self.socket.read(&mut byte).await;
    }
}

/// `path` shortened to fit a socket address; the descriptor must live while it is used.
pub(crate) fn short_path(path: &Path) -> io::Result<(OwnedFd, std::path::PathBuf)> {
    use rustix::fs::{CWD, Mode, OFlags};
    use std::os::fd::AsRawFd;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not the path of a socket",
        ));
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(CWD, folder, flags, Mode::empty())?;
    let mut short = std::path::PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    short.push(name);
    Ok((folder, short))
}

fn send_with_fd(socket: &UnixStream, bytes: &[u8], fd: BorrowedFd<'_>) -> io::Result<usize> {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    Ok(rustix::net::sendmsg(
        socket.as_fd(),
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?)
}

fn receive_with_fd(socket: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        socket.as_fd(),
        &mut [IoSliceMut::new(bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            // Surplus descriptors are closed by dropping them.
            for fd in fds {
                descriptor.get_or_insert(fd);
            }
        }
    }
    Ok((received.bytes, descriptor))
}

#[cfg(test)]
mod tests {
    use super::super::{Request, Response};
    use super::*;

    #[tokio::test]
    async fn a_message_carries_a_descriptor() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut a, mut b) = (MessageStream::new(a), MessageStream::new(b));
        let file = tempfile::tempfile().unwrap();
        a.send(
            &Response::Connected { token: "t".into() },
            Some(file.as_fd()),
        )
        .await
        .unwrap();
        let (message, fd) = b.receive::<Response>().await.unwrap();
        assert_eq!(message, Response::Connected { token: "t".into() });
        let theirs = rustix::fs::fstat(fd.unwrap()).unwrap();
        assert_eq!(theirs.st_ino, rustix::fs::fstat(&file).unwrap().st_ino);
    }

    #[tokio::test]
    async fn long_lengths_and_rubbish_are_refused() {
        let (mut raw, b) = UnixStream::pair().unwrap();
        let mut b = MessageStream::new(b);
        raw.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
        assert!(matches!(
            b.receive::<Request>().await,
            Err(TransportError::TooLong(_))
        ));

        let (mut raw, b) = UnixStream::pair().unwrap();
        let mut b = MessageStream::new(b);
        raw.write_all(b"\x02\0\0\0{]").await.unwrap();
        assert!(matches!(
            b.receive::<Request>().await,
            Err(TransportError::Malformed(_))
        ));

        let (mut raw, b) = UnixStream::pair().unwrap();
        let mut b = MessageStream::new(b);
        raw.write_all(b"\x09\0\0\0{").await.unwrap();
        drop(raw);
        assert!(matches!(
            b.receive::<Request>().await,
            Err(TransportError::Closed)
        ));
    }

    #[tokio::test]
    async fn a_socket_path_may_be_longer_than_an_address() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let path = deep.join("keeper.sock");
        let (_folder, short) = short_path(&path).unwrap();
        let listener = tokio::net::UnixListener::bind(short).unwrap();
        let (client, server) = tokio::join!(MessageStream::connect(&path), async {
            listener.accept().await
        });
        client.unwrap().send(&Request::Status, None).await.unwrap();
        let mut server = MessageStream::new(server.unwrap().0);
        assert_eq!(
            server.receive::<Request>().await.unwrap().0,
            Request::Status
        );
    }
}
