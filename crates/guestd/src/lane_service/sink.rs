//! Writing a file piece by piece, past the page cache where that is faster.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};

use airlock_lane::AlignedBuf;
use airlock_model::size::{KIB, align_up};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use crate::server::Role;

/// Files from this size on are written with direct I/O where the file system can.
///
/// A buffered write fills pages of the cache, which an emulated guest does at 60 to 70 MiB/s; a
/// direct write of the worker's own buffer costs two more calls (reserve, open again: 0.3 ms) and
/// a disk request. Measured there with ext4, 64 KiB: 1.2 ms direct, 1.1 buffered; 256 KiB: 1.4
/// and 3.4; 1 MiB: 1.8 and 14; 4 MiB: 6.6 and 68. Reading, from the disk: 256 KiB: 0.6 and 1.8;
/// 1 MiB: 1.0 and 9.5.
pub(crate) const DIRECT_MIN_BYTES: u64 = 128 * KIB;

/// How large files are read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskIo {
    /// Past the page cache: the disk is a virtual one, and the host caches it.
    Direct,
    /// Through the page cache: the disk is the host's own, and a direct read would wait for it.
    Cached,
}

impl DiskIo {
    /// What is faster where guestd is `role`.
    pub(crate) const fn of(role: Role) -> Self {
        match role {
            Role::Machine => Self::Direct,
            Role::Container | Role::Plain => Self::Cached,
        }
    }
}

/// Where the pieces of one upload go.
pub(crate) struct Sink {
    buffered: File,
    /// The same file, opened for direct I/O.
    direct: Option<File>,
    /// The file system turned out not to take direct writes.
    direct_refused: AtomicBool,
    cancelled: AtomicBool,
}

impl Sink {
    /// Prepares to write `file`, of `size` bytes where that is known.
    pub(crate) fn new(file: &File, size: Option<u64>, io: DiskIo) -> io::Result<Self> {
        let large = size.is_none_or(|size| size >= DIRECT_MIN_BYTES);
        let direct = if large && io == DiskIo::Direct {
            reopen_direct(file, false)
        } else {
            None
        };
        if let Some(size) = size.filter(|size| direct.is_some() && *size > 0) {
            reserve(file, size)?;
        }
        Ok(Self {
            buffered: file.try_clone()?,
            direct,
            direct_refused: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
        })
    }

    /// Says that the file will not be published, so that queued pieces are not worth doing.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether the file will not be published.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Writes the first `bytes` of `buffer` at `offset`, a multiple of the block size.
    ///
    /// Direct writes are of whole blocks, so a last piece may leave zeros behind the end of the
    /// file until [`finish`](Self::finish).
    pub(crate) fn write(
        &self,
        buffer: &mut AlignedBuf,
        bytes: usize,
        offset: u64,
    ) -> io::Result<()> {
        if let Some(direct) = &self.direct
            && !self.direct_refused.load(Ordering::Relaxed)
        {
            let blocks = align_up(bytes);
            buffer[bytes..blocks].fill(0);
            match direct.write_all_at(&buffer[..blocks], offset) {
                Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                    self.direct_refused.store(true, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        self.write_buffered(&buffer[..bytes], offset)
    }

    /// Whether whole blocks of an aligned buffer are wanted.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct.is_some() && !self.direct_refused.load(Ordering::Relaxed)
    }

    /// Writes `data` through the page cache.
    pub(crate) fn write_buffered(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.buffered.write_all_at(data, offset)
    }

    /// Sets the length, once every piece is written.
    pub(crate) fn finish(&self, size: u64) -> io::Result<()> {
        if self.buffered.metadata()?.len() != size {
            self.buffered.set_len(size)?;
        }
        Ok(())
    }
}

/// Opens the file behind `file` once more, for direct I/O; nothing where that cannot be.
pub(crate) fn reopen_direct(file: &File, read: bool) -> Option<File> {
    OpenOptions::new()
        .read(read)
        .write(!read)
        .custom_flags(OFlags::DIRECT.bits().cast_signed())
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .ok()
}

/// Reserves room, so that a full disk shows now and pieces need not grow the file one by one.
fn reserve(file: &File, size: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size) {
        // Not every file system can; the pieces find out then.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
