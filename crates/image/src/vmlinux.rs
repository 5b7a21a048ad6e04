//! Takes the plain kernel out of a self-extracting x86 one.
//!
//! An emulated processor spends about half a second on unpacking and relocating the kernel, at
//! every boot. The host can do that once: QEMU starts an ELF kernel that carries a PVH entry point
//! directly. What this loses is the random load address of the kernel, which protects the inside
//! of a Space from itself; the wall around the Space does not rest on it.
//!
//! Formats: the kernel's `Documentation/arch/x86/boot.rst` (header), the LZ4 block format, and the
//! ELF notes of Xen's `elfnote.h` (PVH).

/// Where the header's fields are in the file.
const SETUP_SECTORS: usize = 0x1f1;
const HEADER_MAGIC: usize = 0x202;
const PROTOCOL: usize = 0x206;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_BYTES: usize = 0x24c;

/// The first protocol that tells where the payload is.
const FIRST_PROTOCOL: u16 = 0x208;
const SECTOR_BYTES: usize = 512;

/// No kernel for a virtual machine is larger; a length beyond it is nonsense.
const MAX_KERNEL_BYTES: usize = 512 << 20;

/// A packed kernel, and how it is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packed<'b> {
    /// In the old LZ4 frame, which is unpacked here.
    Lz4 {
        /// The frame.
        frame: &'b [u8],
        /// Size of the kernel.
        plain_bytes: usize,
    },
    /// In a format that a host program unpacks.
    Other {
        /// The program, called with `-dc`.
        tool: &'static str,
        /// What it is given.
        stream: &'b [u8],
    },
}

/// Finds the packed kernel in a bzImage; `None` if the file is something else.
pub(crate) fn find(image: &[u8]) -> Option<Packed<'_>> {
    if image.get(HEADER_MAGIC..HEADER_MAGIC + 4)? != b"HdrS"
        || u16_at(image, PROTOCOL)? < FIRST_PROTOCOL
    {
        return None;
    }
    let sectors = match image.get(SETUP_SECTORS)? {
        // What very old boot loaders meant by zero.
        0 => 4,
        sectors => usize::from(*sectors),
    };
    let start = (sectors + 1) * SECTOR_BYTES + u32_at(image, PAYLOAD_OFFSET)? as usize;
    let payload = image.get(start..start.checked_add(u32_at(image, PAYLOAD_BYTES)? as usize)?)?;
    // All formats but gzip, which has it already, are followed by the size of the plain kernel.
    let (stream, size) = payload.split_at_checked(payload.len().checked_sub(4)?)?;
    match payload {
        [0x02, 0x21, 0x4c, 0x18, ..] => {
            let plain_bytes = u32::from_le_bytes(size.try_into().ok()?) as usize;
            Some(Packed::Lz4 {
                frame: stream,
                plain_bytes,
            })
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packed::Other {
            tool: "zstd",
            stream,
        }),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Packed::Other { tool: "xz", stream }),
        [0x1f, 0x8b, ..] => Some(Packed::Other {
            tool: "gzip",
            stream: payload,
        }),
        _ => None,
    }
}

/// Unpacks the old LZ4 frame: a magic number, then blocks, each with its length before it.
pub(crate) fn unpack_lz4(frame: &[u8], plain_bytes: usize) -> Option<Vec<u8>> {
    if plain_bytes > MAX_KERNEL_BYTES {
        return None;
    }
    let mut out = Vec::with_capacity(plain_bytes);
    let mut rest = frame.get(4..)?;
    while !rest.is_empty() {
        let bytes = u32_at(rest, 0)? as usize;
        let block = rest.get(4..4usize.checked_add(bytes)?)?;
        rest = &rest[4 + bytes..];
        unpack_block(block, &mut out, plain_bytes)?;
    }
    (out.len() == plain_bytes).then_some(out)
}

/// One block: runs of literal bytes, each followed by a copy from what was already written.
fn unpack_block(block: &[u8], out: &mut Vec<u8>, limit: usize) -> Option<()> {
    const SHORTEST_COPY: usize = 4;
    let block_start = out.len();
    let mut at = 0;
    while at < block.len() {
        let token = block[at];
        at += 1;
        let literals = length(block, &mut at, token >> 4)?;
        out.extend_from_slice(block.get(at..at.checked_add(literals)?)?);
        at += literals;
        if at == block.len() {
            // The last run of a block has no copy.
            break;
        }
        let distance = usize::from(u16_at(block, at)?);
        at += 2;
        let copied = length(block, &mut at, token & 0xf)? + SHORTEST_COPY;
        let from = out
            .len()
            .checked_sub(distance)
            .filter(|from| *from >= block_start)?;
        if distance == 0 || out.len() + copied > limit {
            return None;
        }
        if distance >= copied {
            out.extend_from_within(from..from + copied);
        } else {
            // The copy reads what it writes: a repeated pattern.
            for index in from..from + copied {
                out.push(out[index]);
            }
        }
    }
    (out.len() <= limit).then_some(())
}

/// A length of four bits, with more bytes after it while they are full.
fn length(block: &[u8], at: &mut usize, nibble: u8) -> Option<usize> {
    let mut length = usize::from(nibble);
    if nibble == 0xf {
        loop {
            let more = *block.get(*at)?;
            *at += 1;
            length += usize::from(more);
            if more != u8::MAX {
                break;
            }
        }
    }
    Some(length)
}

/// Whether QEMU can start this file directly: a 64-bit ELF with a PVH entry point.
pub(crate) fn has_pvh_entry(kernel: &[u8]) -> bool {
    pvh_entry(kernel).is_some()
}

fn pvh_entry(kernel: &[u8]) -> Option<u64> {
    const PT_NOTE: u32 = 4;
    const PVH_ENTRY: u32 = 18;
    if kernel.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let table = usize::try_from(u64_at(kernel, 32)?).ok()?;
    let entry_bytes = usize::from(u16_at(kernel, 54)?);
    for index in 0..usize::from(u16_at(kernel, 56)?) {
        let header = kernel.get(table.checked_add(index * entry_bytes)?..)?;
        if u32_at(header, 0)? != PT_NOTE {
            continue;
        }
        let start = usize::try_from(u64_at(header, 8)?).ok()?;
        let bytes = usize::try_from(u64_at(header, 32)?).ok()?;
        let mut notes = kernel.get(start..start.checked_add(bytes)?)?;
        while notes.len() >= 12 {
            let name_bytes = (u32_at(notes, 0)? as usize).next_multiple_of(4);
            let value_bytes = (u32_at(notes, 4)? as usize).next_multiple_of(4);
            let kind = u32_at(notes, 8)?;
            let value = 12usize.checked_add(name_bytes)?;
            if kind == PVH_ENTRY && notes.get(12..15)? == b"Xen" {
                return u32_at(notes, value).map(u64::from);
            }
            notes = notes
                .get(value.checked_add(value_bytes)?..)
                .unwrap_or_default();
        }
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bzImage with nothing but the header and this payload.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 2 * SECTOR_BYTES];
        image[SETUP_SECTORS] = 1;
        image[HEADER_MAGIC..HEADER_MAGIC + 4].copy_from_slice(b"HdrS");
        image[PROTOCOL..PROTOCOL + 2].copy_from_slice(&0x20fu16.to_le_bytes());
        image[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4].copy_from_slice(&0u32.to_le_bytes());
        let bytes = u32::try_from(payload.len()).unwrap();
        image[PAYLOAD_BYTES..PAYLOAD_BYTES + 4].copy_from_slice(&bytes.to_le_bytes());
        image.extend_from_slice(payload);
        image
    }

    fn lz4_payload(block: &[u8], plain_bytes: u32) -> Vec<u8> {
        let mut payload = vec![0x02, 0x21, 0x4c, 0x18];
        payload.extend_from_slice(&u32::try_from(block.len()).unwrap().to_le_bytes());
        payload.extend_from_slice(block);
        payload.extend_from_slice(&plain_bytes.to_le_bytes());
        payload
    }

    #[test]
    fn unpacks_literals_copies_and_patterns() {
        // "ab", then 10 bytes from 2 back, then "xyz".
        let block = [0x26, b'a', b'b', 2, 0, 0x30, b'x', b'y', b'z'];
        let image = image(&lz4_payload(&block, 15));
        let Some(Packed::Lz4 { frame, plain_bytes }) = find(&image) else {
            panic!("no LZ4")
        };
        assert_eq!(unpack_lz4(frame, plain_bytes).unwrap(), b"ababababababxyz");
        assert_eq!(unpack_lz4(frame, 14), None);
        assert_eq!(unpack_lz4(frame, 16), None);
        assert_eq!(unpack_lz4(&frame[..frame.len() - 1], 15), None);
    }

    #[test]
    fn bad_input_is_no_kernel_and_no_panic() {
        for block in [
            &[0x24, b'a', b'b', 3, 0][..],
            &[0x24, b'a', b'b', 0, 0],
            &[0xf0],
            &[0xf0, 255],
        ] {
            let payload = lz4_payload(block, 100);
            assert_eq!(
                unpack_lz4(&payload[..payload.len() - 4], 100),
                None,
                "{block:?}"
            );
        }
        assert_eq!(find(b""), None);
        assert_eq!(find(&image(b"\x7fELF")), None);
        let mut cut = image(&[0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0, 0]);
        assert!(
            matches!(find(&cut), Some(Packed::Other { tool: "zstd", stream }) if stream.len() == 4)
        );
        cut.pop();
        assert_eq!(find(&cut), None);
        let mut elf = vec![0; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[56] = 1;
        assert!(!has_pvh_entry(&elf) && !has_pvh_entry(b"\x7fELF"));
    }
}
