//! The wall for a container: between a TAP interface in its network namespace and passt.
//!
//! One read of the interface is one frame; passt wants each behind its length.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::wall::{LENGTH_BYTES, MAX_FRAME_BYTES, Verdict, WallError, judge};

/// Frames read at most before passt hears of them; each wakes it once.
const BATCH_BYTES: usize = 2 * (LENGTH_BYTES + MAX_FRAME_BYTES);

/// Lets the runtime watch `fd`, which must not block.
#[expect(
    unsafe_code,
    reason = "the runtime takes no other descriptor than a stream safely"
)]
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names one and the same open descriptor for as long as it lives, and
    // the result owns it.
    unsafe { AsyncFd::register(fd) }.map_err(io::Error::from)
}

/// Moves frames both ways until one side ends. Dropping the future closes both.
pub(crate) async fn guard(tap: AsyncFd<OwnedFd>, passt: UnixStream) -> Result<(), WallError> {
    let (from_passt, to_passt) = passt.into_split();
    tokio::select! {
        ended = outward(&tap, to_passt) => ended,
        ended = inward(from_passt, &tap) => ended,
    }
}

async fn outward(tap: &AsyncFd<OwnedFd>, mut to: OwnedWriteHalf) -> Result<(), WallError> {
    let mut buffer = vec![0; BATCH_BYTES];
    loop {
        let mut filled = read_frame(tap, &mut buffer).await?;
        // What waits already goes along.
        while buffer.len() - filled >= LENGTH_BYTES + MAX_FRAME_BYTES {
            match try_read_frame(tap.get_ref(), &mut buffer[filled..]) {
                Ok(length) => filled += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        to.write_all(&buffer[..filled]).await?;
    }
}

async fn read_frame(tap: &AsyncFd<OwnedFd>, into: &mut [u8]) -> io::Result<usize> {
    loop {
        let mut ready = tap.readable().await?;
        if let Ok(read) = ready.try_io(|tap| try_read_frame(tap.get_ref(), into)) {
            return read;
        }
    }
}

/// Reads one frame behind its length. Returns the bytes of both, or 0 for one that is dropped.
fn try_read_frame(tap: &OwnedFd, into: &mut [u8]) -> io::Result<usize> {
    let (length, frame) = into.split_at_mut(LENGTH_BYTES);
    let read = rustix::io::read(tap, &mut *frame)?;
    match judge(&frame[..read]) {
        Verdict::Pass => {
            length.copy_from_slice(&(read as u32).to_be_bytes());
            Ok(LENGTH_BYTES + read)
        }
        Verdict::Drop => Ok(0),
    }
}

async fn inward(mut from: OwnedReadHalf, tap: &AsyncFd<OwnedFd>) -> Result<(), WallError> {
    let mut buffer = vec![0; 4 * (LENGTH_BYTES + MAX_FRAME_BYTES)];
    let mut filled = 0;
    loop {
        let read = from.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        let mut start = 0;
        while let Some(&length) = buffer[start..filled].first_chunk::<LENGTH_BYTES>() {
            let length = u32::from_be_bytes(length) as usize;
            if length > MAX_FRAME_BYTES {
                return Err(WallError::FrameTooLong { length });
            }
            let end = start + LENGTH_BYTES + length;
            if end > filled {
                break;
            }
            write_frame(tap, &buffer[start + LENGTH_BYTES..end]).await?;
            start = end;
        }
        buffer.copy_within(start..filled, 0);
        filled -= start;
    }
}

async fn write_frame(tap: &AsyncFd<OwnedFd>, frame: &[u8]) -> io::Result<()> {
    loop {
        let mut ready = tap.writable().await?;
        let written = ready.try_io(|tap| Ok(rustix::io::write(tap.get_ref(), frame)?));
        match written {
            Ok(Ok(_)) => return Ok(()),
            // The kernel does not take a frame while the interface goes down or is malformed: a
            // network loses such frames.
            Ok(Err(error))
                if matches!(error.raw_os_error(), Some(code) if code == rustix::io::Errno::IO.raw_os_error()
                    || code == rustix::io::Errno::INVAL.raw_os_error()) =>
            {
                return Ok(());
            }
            Ok(Err(error)) => return Err(error),
            Err(_would_block) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// An IPv4 frame to `destination` with `payload`.
    fn frame(destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20];
        frame[12] = 0x08;
        frame[14] = 0x45;
        frame[14 + 16..14 + 20].copy_from_slice(&destination);
        frame.extend_from_slice(payload);
        frame
    }

    /// A socket that keeps frames apart, as an interface does.
    fn interface() -> (AsyncFd<OwnedFd>, std::os::unix::net::UnixDatagram) {
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (watch(OwnedFd::from(ours)).unwrap(), theirs)
    }

    #[tokio::test]
    async fn frames_pass_both_ways_and_those_to_the_host_do_not() {
        let (tap, container) = interface();
        let (ours, mut passt) = UnixStream::pair().unwrap();
        let wall = tokio::spawn(guard(tap, ours));
        container.send(&frame([127, 0, 0, 1], b"evil")).unwrap();
        let good = frame([192, 0, 2, 1], b"good");
        container.send(&good).unwrap();
        let mut length = [0; 4];
        passt.read_exact(&mut length).await.unwrap();
        assert_eq!(u32::from_be_bytes(length) as usize, good.len());
        let mut read = vec![0; good.len()];
        passt.read_exact(&mut read).await.unwrap();
        assert_eq!(read, good);

        let mut both = Vec::new();
        for payload in [b"one", b"two"] {
            let frame = frame([192, 0, 2, 2], payload);
            both.extend((frame.len() as u32).to_be_bytes());
            both.extend(frame);
        }
        // In pieces that match no frame.
        for piece in both.chunks(7) {
            passt.write_all(piece).await.unwrap();
        }
        let received = tokio::task::spawn_blocking(move || {
            container
                .set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
            let mut buffer = [0; 100];
            [(); 2].map(|()| {
                let read = container.recv(&mut buffer).unwrap();
                buffer[read - 3..read].to_vec()
            })
        });
        assert_eq!(received.await.unwrap(), [b"one", b"two"]);
        drop(passt);
        wall.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_length_that_cannot_be_ends_the_wall() {
        let (tap, _container) = interface();
        let (ours, mut passt) = UnixStream::pair().unwrap();
        let wall = tokio::spawn(guard(tap, ours));
        passt.write_all(&u32::MAX.to_be_bytes()).await.unwrap();
        let ended = wall.await.unwrap();
        assert!(matches!(ended, Err(WallError::FrameTooLong { .. })));
    }
}
