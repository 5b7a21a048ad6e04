//! The wall between a guest's data network and the host's loopback.
//!
//! passt opens a host socket for every destination that a guest's packet names. Its
//! `--no-map-gw` keeps the *gateway's* address from leading to the host, and a guest's own
//! kernel never sends 127.0.0.1 to a network card. But a guest's root can write any packet, and
//! passt (2023-03) connects wherever it says: tried, 127.0.0.0/8, 0.0.0.0, `::`, `::1` and
//! `::ffff:127.0.0.1` all reached listeners on the host's loopback.
//!
//! So every frame from QEMU passes through here before passt sees it, and only those go on whose
//! destination can be another machine. The destination sits at a fixed offset in both versions
//! of IP, so passt cannot read another one than this module does.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

#[cfg(test)]
mod tests;

/// The longest frame that QEMU sends: its buffer for one packet.
pub const MAX_FRAME_BYTES: usize = 4096 + 65536;
/// Bytes before each frame: its length, most significant byte first.
pub(crate) const LENGTH_BYTES: usize = 4;
/// Room for several of the largest frames, so that one read moves many.
const BUFFER_BYTES: usize = 4 * (LENGTH_BYTES + MAX_FRAME_BYTES);

/// What happens to a frame on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Pass,
    /// It is dropped in silence, as a network does.
    Drop,
}

/// Judges one Ethernet frame that the guest sends.
pub fn judge(frame: &[u8]) -> Verdict {
    const ETHERTYPE: usize = 12;
    let Some(ethertype) = bytes_at::<2>(frame, ETHERTYPE) else {
        return Verdict::Drop;
    };
    match u16::from_be_bytes(ethertype) {
        // Address resolution: passt answers it itself.
        0x0806 => Verdict::Pass,
        0x0800 => judge_v4(&frame[ETHERTYPE + 2..]),
        0x86dd => judge_v6(&frame[ETHERTYPE + 2..]),
        // passt speaks nothing else; VLAN tags could only hide something.
        _other => Verdict::Drop,
    }
}

fn judge_v4(packet: &[u8]) -> Verdict {
    const HEADER_BYTES: usize = 20;
    const DESTINATION: usize = 16;
    let Some([first, ..]) = bytes_at::<4>(packet, DESTINATION) else {
        return Verdict::Drop;
    };
    if packet.len() < HEADER_BYTES || packet[0] >> 4 != 4 {
        return Verdict::Drop;
    }
    match first {
        // "This host" (which Linux takes for loopback), loopback, and what is no one machine:
        // multicast, reserved, broadcast.
        0 | 127 | 224..=255 => Verdict::Drop,
        1..=126 | 128..=223 => Verdict::Pass,
    }
}

fn judge_v6(packet: &[u8]) -> Verdict {
    const HEADER_BYTES: usize = 40;
    const NEXT_HEADER: usize = 6;
    const DESTINATION: usize = 24;
    const ICMP_V6: u8 = 58;
    let Some([first, ..]) = bytes_at::<16>(packet, DESTINATION) else {
        return Verdict::Drop;
    };
    if packet[0] >> 4 != 6 {
        return Verdict::Drop;
    }
    match first {
        // ::, ::1, and every way to write an IPv4 address inside an IPv6 one lie in ::/8.
        0 => Verdict::Drop,
        // Multicast: only neighbour discovery (types 133 to 136), which passt answers itself.
        0xff => match (packet[NEXT_HEADER], packet.get(HEADER_BYTES)) {
            (ICMP_V6, Some(133..=136)) => Verdict::Pass,
            (_, _) => Verdict::Drop,
        },
        1..=0xfe => Verdict::Pass,
    }
}

fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset + N)?.try_into().ok()
}

/// Why the wall ended.
#[derive(Debug, thiserror::Error)]
pub enum WallError {
    /// A socket failed.
    #[error("cannot move frames between QEMU and passt")]
    Io(#[from] io::Error),
    /// QEMU announced a frame that it cannot send.
    #[error("QEMU announced a frame of {length} bytes, at most {MAX_FRAME_BYTES} are possible")]
    FrameTooLong {
        /// What it announced.
        length: usize,
    },
}

/// Moves frames both ways until one side ends. Dropping the future closes both sockets.
pub async fn guard(qemu: UnixStream, passt: UnixStream) -> Result<(), WallError> {
    let (from_qemu, mut to_qemu) = qemu.into_split();
    let (mut from_passt, to_passt) = passt.into_split();
    let inward = async {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let read = from_passt.read(&mut buffer).await?;
            if read == 0 {
                return Ok(());
            }
            to_qemu.write_all(&buffer[..read]).await?;
        }
    };
    tokio::select! {
        ended = outward(from_qemu, to_passt) => ended,
        ended = inward => ended,
    }
}

async fn outward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> Result<(), WallError> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut filled = 0;
    loop {
        let read = from.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        let sifted = sift(&mut buffer[..filled])?;
        to.write_all(&buffer[..sifted.passed_bytes]).await?;
        buffer.copy_within(sifted.consumed_bytes..filled, 0);
        filled -= sifted.consumed_bytes;
    }
}

/// What [`sift`] did with a buffer.
#[derive(Debug, PartialEq, Eq)]
struct Sifted {
    /// The buffer's first bytes: whole frames that go on, with their lengths.
    passed_bytes: usize,
    /// Where the first incomplete frame starts.
    consumed_bytes: usize,
}

/// Moves the frames that may go on to the front of `buffer`.
fn sift(buffer: &mut [u8]) -> Result<Sifted, WallError> {
    let mut passed_bytes = 0;
    let mut consumed_bytes = 0;
    while let Some(length) = bytes_at::<LENGTH_BYTES>(buffer, consumed_bytes) {
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(WallError::FrameTooLong { length });
        }
        let frame = consumed_bytes + LENGTH_BYTES;
        let end = frame + length;
        if end > buffer.len() {
            break;
        }
        match judge(&buffer[frame..end]) {
            Verdict::Pass => {
                if passed_bytes != consumed_bytes {
                    buffer.copy_within(consumed_bytes..end, passed_bytes);
                }
                passed_bytes += end - consumed_bytes;
            }
            Verdict::Drop => {}
        }
        consumed_bytes = end;
    }
    Ok(Sifted {
        passed_bytes,
        consumed_bytes,
    })
}
