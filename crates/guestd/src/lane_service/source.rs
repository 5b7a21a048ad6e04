//! Reading a file piece by piece, and noticing when it changes meanwhile.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use airlock_lane::AlignedBuf;
use airlock_model::size::{DIRECT_IO_ALIGN, align_up};
use airlock_wire::lane_v1::GetEntry;
use airlock_wire::{Fault, FaultKind};
use bytes::Bytes;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::sink::{DIRECT_MIN_BYTES, DiskIo, reopen_direct};
use crate::paths;

/// Most bytes of a file that the kernel makes up while it is read; `/proc/kallsyms` has under 16 MiB.
const MAX_MADE_UP_BYTES: u64 = 32 * 1024 * 1024;
/// Files of up to this size are looked at for being made up: sysfs says a page for all of its own.
const MADE_UP_SIZE_MAX_BYTES: u64 = 64 * 1024;

/// A regular file that is being read.
pub(crate) struct Source {
    file: File,
    /// The content, where only reading tells how long it is.
    made_up: Option<Vec<u8>>,
    /// The same file for direct I/O: no copy through the page cache, and none is left behind.
    direct: Option<File>,
    path: PathBuf,
    stat: Stat,
}

/// Why a piece was not read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The file ended before the piece did.
    Short,
    /// The system said no.
    Io(io::Error),
}

impl Source {
    /// Opens the regular file at `path`; never waits for a pipe's other end.
    pub(crate) fn open(path: &Path, io_kind: DiskIo) -> Result<Self, Fault> {
        let io = |errno: Errno| Fault::from_io(paths::escape_path(path), &errno.into());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        // A device can act on being opened, so its type is looked at first; the second look below
        // is the one that counts.
        refuse_special(path, &rustix::fs::stat(path).map_err(io)?)?;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(io)?);
        let stat = rustix::fs::fstat(&file).map_err(io)?;
        refuse_special(path, &stat)?;
        let resolved = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let large = stat.st_size.unsigned_abs() >= DIRECT_MIN_BYTES;
        Ok(Self {
            made_up: made_up(path, &file, &stat)?,
            direct: if large && io_kind == DiskIo::Direct {
                reopen_direct(&file, true)
            } else {
                None
            },
            file,
            path: resolved.unwrap_or_else(|_| path.to_owned()),
            stat,
        })
    }

    /// Bytes in the file when it was opened.
    pub(crate) fn size(&self) -> u64 {
        match &self.made_up {
            Some(content) => content.len() as u64,
            None => self.stat.st_size.unsigned_abs(),
        }
    }

    /// What the caller learns of the file.
    pub(crate) fn entry(&self) -> GetEntry {
        let seconds = self.stat.st_mtime.saturating_mul(1_000_000_000);
        GetEntry {
            size: self.size(),
            mode: self.stat.st_mode & 0o7777,
            mtime_ns: seconds.saturating_add(self.stat.st_mtime_nsec.cast_signed()),
            uid: self.stat.st_uid,
            gid: self.stat.st_gid,
            path: Bytes::copy_from_slice(self.path.as_os_str().as_bytes()),
        }
    }

    /// Reads `bytes` bytes at `offset`, a multiple of the block size, to the start of `buffer`.
    pub(crate) fn read(
        &self,
        offset: u64,
        bytes: usize,
        buffer: &mut AlignedBuf,
    ) -> Result<(), ReadError> {
        if self.made_up.is_some() {
            return self.read_buffered(offset, &mut buffer[..bytes]);
        }
        if let Some(direct) = &self.direct {
            match fill(direct, offset, bytes, &mut buffer[..align_up(bytes)]) {
                Err(ReadError::Io(error))
                    if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {}
                result => return result,
            }
        }
        fill(&self.file, offset, bytes, &mut buffer[..bytes])
    }

    /// Reads through the page cache to a buffer of any alignment.
    pub(crate) fn read_buffered(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let bytes = buffer.len();
        if let Some(content) = &self.made_up {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let piece = content.get(start..).and_then(|rest| rest.get(..bytes));
            buffer.copy_from_slice(piece.ok_or(ReadError::Short)?);
            return Ok(());
        }
        fill(&self.file, offset, bytes, buffer)
    }

    /// Fails when the file is no longer as it was when it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<(), Fault> {
        let now = rustix::fs::fstat(&self.file)
            .map_err(|errno| Fault::from_io(paths::escape_path(&self.path), &errno.into()))?;
        let key = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        if key(&now) == key(&self.stat) {
            return Ok(());
        }
        Err(self.changed())
    }

    /// The fault for a file that changed while it was read.
    pub(crate) fn changed(&self) -> Fault {
        let path = paths::escape_path(&self.path);
        Fault::new(
            FaultKind::SourceChanged,
            format!("{path} changed while it was read"),
        )
    }

    /// The fault for a piece that was not read.
    pub(crate) fn fault(&self, error: &ReadError) -> Fault {
        match error {
            ReadError::Short => self.changed(),
            ReadError::Io(error) => Fault::from_io(paths::escape_path(&self.path), error),
        }
    }
}

/// Reads until `bytes` bytes of `buffer` are filled; a direct read may fill the rest of it too.
fn fill(file: &File, offset: u64, bytes: usize, buffer: &mut [u8]) -> Result<(), ReadError> {
    let mut filled = 0;
    while filled < bytes {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => return Err(ReadError::Short),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // After the end of the file a direct read cannot go on inside a block.
            Err(_) if !filled.is_multiple_of(DIRECT_IO_ALIGN) => return Err(ReadError::Short),
            Err(error) => return Err(ReadError::Io(error)),
        }
    }
    Ok(())
}

/// The content of `file`, if its size says nothing about it, as in `/proc` and `/sys`.
///
/// Such files say 0 or a page, and have no blocks. A copy that believed them would be empty, or
/// would call every one of them changed.
fn made_up(path: &Path, file: &File, stat: &Stat) -> Result<Option<Vec<u8>>, Fault> {
    let size = stat.st_size.unsigned_abs();
    if stat.st_blocks != 0 || size > MADE_UP_SIZE_MAX_BYTES {
        return Ok(None);
    }
    let fault = |error: io::Error| Fault::from_io(paths::escape_path(path), &error);
    let mut content = Vec::new();
    // The file's own position is not used elsewhere.
    let mut reader = io::Read::take(file, MAX_MADE_UP_BYTES + 1);
    io::Read::read_to_end(&mut reader, &mut content).map_err(fault)?;
    let read = content.len() as u64;
    let now = rustix::fs::fstat(file).map_err(|errno| fault(errno.into()))?;
    if read == size || now.st_size != stat.st_size || now.st_blocks != 0 {
        // An ordinary file; if somebody writes it just now, that is found out as for any other.
        return Ok(None);
    }
    if read > MAX_MADE_UP_BYTES {
        let shown = paths::escape_path(path);
        let message = format!("{shown} is made by the kernel and has more than 32 MiB");
        return Err(Fault::new(FaultKind::InvalidArgument, message));
    }
    Ok(Some(content))
}

fn refuse_special(path: &Path, stat: &Stat) -> Result<(), Fault> {
    let shown = paths::escape_path(path);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Fault::new(
            FaultKind::IsADirectory,
            format!("{shown} is a directory"),
        )),
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Symlink
        | FileType::Unknown => Err(Fault::new(
            FaultKind::InvalidArgument,
            format!("{shown} is not a regular file"),
        )),
    }
}
