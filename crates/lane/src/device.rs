//! The Space's side of the lane: a raw disk in a VM, an inherited descriptor elsewhere.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use airlock_model::LaneGeometry;
use airlock_model::size::{DIRECT_IO_ALIGN, SLOT_BYTES};
use rustix::fs::OFlags;

use crate::slot::{SlotError, locate};

/// Serial number of the disk that is the lane; names such as `vda` depend on the order of probing.
pub const LANE_SERIAL: &str = "airlock-lane";

/// The lane as a Space sees it.
///
/// A disk is used with direct I/O, since cached reads would show old bytes; lengths and buffers
/// must then be multiples of [`DIRECT_IO_ALIGN`], which holds for both kinds here.
#[derive(Debug)]
pub struct LaneDevice {
    file: File,
    geometry: LaneGeometry,
    #[cfg(feature = "fault-injection")]
    faults: Option<std::sync::Arc<crate::faults::LaneFaults>>,
}

/// Why the lane could not be opened inside the Space.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No disk has the serial number.
    #[error("no disk here has the serial number {serial}")]
    NotFound {
        /// Serial number looked for.
        serial: String,
    },
    /// It is of another length than a lane.
    #[error("{path} has {got} bytes, a lane has {expected}")]
    Length {
        /// The disk or file.
        path: PathBuf,
        /// Its length.
        got: u64,
        /// Length of a lane.
        expected: u64,
    },
    /// It could not be opened or looked at.
    #[error("{path} could not be opened as the lane")]
    Io {
        /// The disk, file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Lets the kernel send requests of a whole slot to `disk`.
///
/// Unless told it cuts them at 1,280 KiB, and each piece costs a turn through the hypervisor.
fn widen_requests(disk: &Path) {
    if let Some(name) = disk.file_name() {
        let limit = Path::new("/sys/block")
            .join(name)
            .join("queue/max_sectors_kb");
        // A disk that cannot be told is a little slower, no more.
        let _ = fs::write(limit, (SLOT_BYTES / 1024).to_string());
    }
}

impl LaneDevice {
    /// Opens the disk with serial number `serial`.
    pub fn find(serial: &str) -> Result<Self, OpenError> {
        let sys = Path::new("/sys/block");
        let io = |source| OpenError::Io {
            path: sys.to_owned(),
            source,
        };
        for entry in fs::read_dir(sys).map_err(io)? {
            let entry = entry.map_err(io)?;
            // Not every kind of disk has one; those are not ours.
            let Ok(found) = fs::read_to_string(entry.path().join("serial")) else {
                continue;
            };
            if found.trim_end() == serial {
                return Self::open(&Path::new("/dev").join(entry.file_name()));
            }
        }
        Err(OpenError::NotFound {
            serial: serial.to_owned(),
        })
    }

    /// Opens the lane at `path`: a disk, a file, or `/proc/self/fd/N` for inherited memory.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io {
            path: path.to_owned(),
            source,
        };
        let is_disk = fs::metadata(path)
            .map_err(io)?
            .file_type()
            .is_block_device();
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if is_disk {
            widen_requests(path);
            options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        }
        Self::adopt(options.open(path).map_err(io)?, path)
    }

    /// Takes over an open file, which errors name `path`.
    pub fn adopt(file: File, path: &Path) -> Result<Self, OpenError> {
        let geometry = LaneGeometry::STANDARD;
        let expected = geometry.total_bytes();
        // A disk's length is where its end is; `st_size` of a disk is zero.
        let got = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).map_err(|error| {
            OpenError::Io {
                path: path.to_owned(),
                source: error.into(),
            }
        })?;
        if got != expected {
            return Err(OpenError::Length {
                path: path.to_owned(),
                got,
                expected,
            });
        }
        Ok(Self {
            file,
            geometry,
            #[cfg(feature = "fault-injection")]
            faults: None,
        })
    }

    /// The same lane with faults, for tests.
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

    /// Copies whole blocks from `offset` of `slot` out into `buf`, part of an aligned buffer.
    pub fn read_slot(&self, slot: u32, offset: u64, buf: &mut [u8]) -> Result<(), SlotError> {
        debug_assert_eq!(
            buf.len() % DIRECT_IO_ALIGN,
            0,
            "direct I/O moves whole blocks"
        );
        let at = locate(self.geometry, slot, offset, buf.len())?;
        let io = |source| SlotError::Io { slot, source };
        #[cfg(feature = "fault-injection")]
        if let Some(faults) = &self.faults {
            faults.before_read().map_err(io)?;
        }
        self.file.read_exact_at(buf, at).map_err(io)
    }

    /// Copies the whole blocks `data`, part of an aligned buffer, into `slot` from `offset` on.
    pub fn write_slot(&self, slot: u32, offset: u64, data: &[u8]) -> Result<(), SlotError> {
        debug_assert_eq!(
            data.len() % DIRECT_IO_ALIGN,
            0,
            "direct I/O moves whole blocks"
        );
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

    /// Reads whole blocks at the start of the lane, which is Airlock's own.
    pub(crate) fn read_head(&self, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, 0)
    }

    /// Writes whole blocks at the start of the lane, which is Airlock's own.
    pub(crate) fn write_head(&self, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, 0)
    }
}
