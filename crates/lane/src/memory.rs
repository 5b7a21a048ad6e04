//! The host's side of the lane: a sealed memory file.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use airlock_model::LaneGeometry;
use rustix::fs::{FallocateFlags, FileType, MemfdFlags, SealFlags};

use crate::slot::{SlotError, locate};

/// Seals without which another holder of the memory could shorten it under our feet.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// The lane memory as the host holds it.
///
/// Used with `pread` and `pwrite`, never mapped: a mapping of memory that a Space can write is no
/// ordinary memory, and in a container one of unsealed memory dies of SIGBUS.
#[derive(Debug)]
pub struct LaneMemory {
    file: File,
    geometry: LaneGeometry,
    #[cfg(feature = "fault-injection")]
    faults: Option<std::sync::Arc<crate::faults::LaneFaults>>,
}

/// Why a descriptor is not accepted as lane memory.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// It is not a memory file.
    #[error("the descriptor is a {got:?}, not a memory file")]
    NotMemory {
        /// Its type.
        got: FileType,
    },
    /// It could change its length.
    #[error("the lane memory is not sealed: it has {got:?}")]
    NotSealed {
        /// Seals it has.
        got: SealFlags,
    },
    /// It is of another length than a lane.
    #[error("the lane memory has {got} bytes, a lane has {expected}")]
    Length {
        /// Its length.
        got: u64,
        /// Length of a lane.
        expected: u64,
    },
    /// It could not be looked at.
    #[error("the lane memory could not be examined")]
    Io(#[from] io::Error),
}

impl LaneMemory {
    /// Makes the memory of one lane: all zero, sealed, closed on exec, no page in use yet.
    pub fn create(geometry: LaneGeometry) -> io::Result<Self> {
        let fd = rustix::fs::memfd_create(
            "airlock-lane",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::ftruncate(&fd, geometry.total_bytes())?;
        rustix::fs::fcntl_add_seals(&fd, SEALS)?;
        Ok(Self::wrap(fd, geometry))
    }

    /// Takes over a descriptor that another process handed out, if it is what it should be.
    pub fn from_fd(fd: OwnedFd, geometry: LaneGeometry) -> Result<Self, AdoptError> {
        let stat = rustix::fs::fstat(&fd).map_err(io::Error::from)?;
        let got = FileType::from_raw_mode(stat.st_mode);
        if got != FileType::RegularFile {
            return Err(AdoptError::NotMemory { got });
        }
        let got = match rustix::fs::fcntl_get_seals(&fd) {
            Ok(seals) => seals,
            // A file on disk has no seals at all.
            Err(rustix::io::Errno::INVAL) => SealFlags::empty(),
            Err(error) => return Err(io::Error::from(error).into()),
        };
        if !got.contains(SEALS) {
            return Err(AdoptError::NotSealed { got });
        }
        let expected = geometry.total_bytes();
        let got = u64::try_from(stat.st_size).unwrap_or(0);
        if got != expected {
            return Err(AdoptError::Length { got, expected });
        }
        Ok(Self::wrap(fd, geometry))
    }

    fn wrap(fd: OwnedFd, geometry: LaneGeometry) -> Self {
        Self {
            file: File::from(fd),
            geometry,
            #[cfg(feature = "fault-injection")]
            faults: None,
        }
    }

    /// Another handle on the same memory.
    pub fn dup(&self) -> io::Result<Self> {
        Ok(Self {
            file: self.file.try_clone()?,
            geometry: self.geometry,
            #[cfg(feature = "fault-injection")]
            faults: self.faults.clone(),
        })
    }

    /// The same memory with faults, for tests.
    #[cfg(feature = "fault-injection")]
    #[must_use]
    pub fn with_faults(mut self, faults: std::sync::Arc<crate::faults::LaneFaults>) -> Self {
        self.faults = Some(faults);
        self
    }

    /// The layout.
    #[must_use]
    pub fn geometry(&self) -> LaneGeometry {
        self.geometry
    }

    /// Copies bytes from `offset` of `slot` out into `buf`.
    pub fn read_slot(&self, slot: u32, offset: u64, buf: &mut [u8]) -> Result<(), SlotError> {
        let at = locate(self.geometry, slot, offset, buf.len())?;
        let io = |source| SlotError::Io { slot, source };
        #[cfg(feature = "fault-injection")]
        if let Some(faults) = &self.faults {
            faults.before_read().map_err(io)?;
        }
        self.file.read_exact_at(buf, at).map_err(io)
    }

    /// Copies `data` into `slot` from `offset` on.
    pub fn write_slot(&self, slot: u32, offset: u64, data: &[u8]) -> Result<(), SlotError> {
        let at = locate(self.geometry, slot, offset, data.len())?;
        let io = |source| SlotError::Io { slot, source };
        #[cfg(feature = "fault-injection")]
        let flipped = match &self.faults {
            Some(faults) => faults.before_write(data).map_err(io)?,
            None => None,
        };
        #[cfg(feature = "fault-injection")]
        let data = flipped.as_deref().unwrap_or(data);
        self.file.write_all_at(data, at).map_err(io)
    }

    /// Reads the start of the lane, which is Airlock's own.
    pub(crate) fn read_head(&self, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, 0)
    }

    /// Writes the start of the lane, which is Airlock's own.
    pub(crate) fn write_head(&self, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, 0)
    }

    /// Gives the pages of `slot` back to the host; it reads as zeros afterwards.
    pub fn punch(&self, slot: u32) -> Result<(), SlotError> {
        let at = locate(self.geometry, slot, 0, 0)?;
        rustix::fs::fallocate(
            &self.file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            at,
            self.geometry.slot_bytes,
        )
        .map_err(|error| SlotError::Io {
            slot,
            source: error.into(),
        })
    }

    /// Bytes of host memory that the lane takes now.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstat(&self.file)?;
        // `st_blocks` counts 512-byte units whatever the block size is (stat(3type)).
        Ok(u64::try_from(stat.st_blocks).unwrap_or(0) * 512)
    }
}

impl AsFd for LaneMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests;
