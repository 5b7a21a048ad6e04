//! The boot configuration in the first MiB of the lane.
//!
//! `AIRLOCK1 | length (u32, little-endian) | SHA-256 of the JSON | JSON of a BootConfig`. The
//! host writes it before the machine starts, guestd reads it as its first act and wipes it, so
//! that no program in the Space finds the token there later.

use std::io;

use airlock_digest::{Digest, FileHasher};
use airlock_model::BootConfig;
use airlock_model::size::DIRECT_IO_ALIGN;

use crate::{AlignedBuf, LaneDevice, LaneMemory};

const MAGIC: &[u8; 8] = b"AIRLOCK1";
const HEADER_BYTES: usize = MAGIC.len() + size_of::<u32>() + Digest::BYTES;

/// Bytes at the start of the lane that the configuration may take.
///
/// A real one has under 2 KiB; reading and wiping 64 KiB costs the boot nothing.
pub const BOOT_AREA_BYTES: usize = 64 * 1024;
const _: () = assert!(BOOT_AREA_BYTES.is_multiple_of(DIRECT_IO_ALIGN));
const _: () = assert!(BOOT_AREA_BYTES as u64 <= airlock_model::size::LANE_RESERVED_BYTES);

/// Why there is no boot configuration.
#[derive(Debug, thiserror::Error)]
pub enum BootConfigError {
    /// Nothing was written, or it was read and wiped before.
    #[error("the lane holds no boot configuration")]
    Absent,
    /// Its length cannot be.
    #[error("a boot configuration of {got} bytes was announced, the most is {most}")]
    Length {
        /// Length announced or to be written.
        got: usize,
        /// The most that fits.
        most: usize,
    },
    /// It is not what was written.
    #[error("the boot configuration has SHA-256 {got}, not {expected}")]
    Digest {
        /// Digest announced.
        expected: Digest,
        /// Digest found.
        got: Digest,
    },
    /// It is no JSON of a configuration.
    #[error("the boot configuration cannot be understood")]
    Json(#[from] serde_json::Error),
    /// The lane could not be read or written.
    #[error("the start of the lane could not be used")]
    Io(#[from] io::Error),
}

/// Puts `config` where guestd looks for it, on the host.
pub fn write_boot_config(memory: &LaneMemory, config: &BootConfig) -> Result<(), BootConfigError> {
    Ok(memory.write_head(&encode(config)?)?)
}

/// Takes the configuration out of the lane and wipes it, in the Space.
pub fn read_boot_config(lane: &LaneDevice) -> Result<BootConfig, BootConfigError> {
    let mut area = AlignedBuf::new(BOOT_AREA_BYTES);
    lane.read_head(&mut area)?;
    let config = decode(&area);
    area.fill(0);
    lane.write_head(&area)?;
    config
}

/// Overwrites the configuration on the host, for a Space that did not get to do it.
pub fn wipe_boot_config(memory: &LaneMemory) -> io::Result<()> {
    memory.write_head(&vec![0; BOOT_AREA_BYTES])
}

/// Whether the configuration is still there: false once guestd took it.
pub fn has_boot_config(memory: &LaneMemory) -> io::Result<bool> {
    let mut magic = [0; MAGIC.len()];
    memory.read_head(&mut magic)?;
    Ok(&magic == MAGIC)
}

fn encode(config: &BootConfig) -> Result<Vec<u8>, BootConfigError> {
    let json = serde_json::to_vec(config)?;
    let most = BOOT_AREA_BYTES - HEADER_BYTES;
    let length = u32::try_from(json.len())
        .ok()
        .filter(|_| json.len() <= most)
        .ok_or(BootConfigError::Length {
            got: json.len(),
            most,
        })?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + json.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(sha256(&json).as_ref());
    bytes.extend_from_slice(&json);
    Ok(bytes)
}

/// Reads a configuration from bytes that anyone may have written.
pub fn decode(area: &[u8]) -> Result<BootConfig, BootConfigError> {
    let rest = area.strip_prefix(MAGIC).ok_or(BootConfigError::Absent)?;
    let (length, rest) = rest.split_first_chunk().ok_or(BootConfigError::Absent)?;
    let (expected, rest) = rest
        .split_first_chunk::<{ Digest::BYTES }>()
        .ok_or(BootConfigError::Absent)?;
    let length = u32::from_le_bytes(*length) as usize;
    let json = rest.get(..length).ok_or(BootConfigError::Length {
        got: length,
        most: rest.len(),
    })?;
    let expected = Digest::from_bytes(*expected);
    let got = sha256(json);
    if got != expected {
        return Err(BootConfigError::Digest { expected, got });
    }
    Ok(serde_json::from_slice(json)?)
}

fn sha256(bytes: &[u8]) -> Digest {
    let mut hasher = FileHasher::new();
    hasher.update(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests;
