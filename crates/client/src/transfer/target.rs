//! Where the bytes of a download go.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use airlock_wire::lane_v1::GetEntry;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use tempfile::NamedTempFile;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::DownloadError;
use super::umask::umask;
use crate::GuestPath;

/// How soon a wait for the other end of a pipe notices that it was cancelled.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Where to download to.
pub enum Target {
    /// A file of the host. It appears whole or not at all; the old one stays until then. An
    /// existing folder gets a file of the name that the source has.
    Path(PathBuf),
    /// Memory, at most so many bytes.
    Bytes {
        /// Bytes that are allowed.
        most: u64,
    },
    /// A stream, which gets verified bytes alone, in order.
    Writer(Box<dyn AsyncWrite + Send + Unpin>),
}

impl Target {
    /// A stream.
    pub fn writer(writer: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        Self::Writer(Box::new(writer))
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.debug_tuple("Path").field(path).finish(),
            Self::Bytes { most } => f.debug_struct("Bytes").field("most", most).finish(),
            Self::Writer(_) => f.write_str("Writer"),
        }
    }
}

impl From<&Path> for Target {
    fn from(path: &Path) -> Self {
        Self::Path(path.to_owned())
    }
}

impl From<PathBuf> for Target {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl From<&str> for Target {
    fn from(path: &str) -> Self {
        Self::Path(path.into())
    }
}

/// How a file shall be published.
#[derive(Debug, Clone, Copy)]
pub(super) struct PublishOptions {
    pub(super) create_new: bool,
    pub(super) keep_attributes: bool,
    pub(super) fsync: bool,
}

/// A target that is being written.
pub(super) enum OpenTarget {
    File {
        temporary: NamedTempFile,
        path: PathBuf,
        entry: GetEntry,
        options: PublishOptions,
    },
    /// A pipe or a device with a name: there is nothing to rename.
    Pipe {
        file: File,
        path: PathBuf,
        stop: CancellationToken,
    },
    Bytes(Vec<u8>),
    Writer {
        writer: Box<dyn AsyncWrite + Send + Unpin>,
        runtime: Handle,
        stop: CancellationToken,
    },
}

/// Where a finished download is.
#[derive(Debug, Default)]
pub(super) struct Placed {
    pub(super) path: Option<PathBuf>,
    pub(super) replaced: bool,
    pub(super) bytes: Vec<u8>,
}

impl OpenTarget {
    /// Opens the target for the file that `entry` describes; blocks.
    ///
    /// Of what the Space says only size, mode and time are used. The name in a folder is the one
    /// that the caller asked for.
    pub(super) fn open(
        target: Target,
        source: &GuestPath,
        entry: GetEntry,
        options: PublishOptions,
        stop: CancellationToken,
    ) -> Result<Self, DownloadError> {
        match target {
            Target::Path(path) => open_path(path, source, entry, options, stop),
            Target::Bytes { most } => {
                let size = entry.size;
                if size > most {
                    return Err(DownloadError::TooLarge { size, most });
                }
                // The size is only claimed; the vector grows with what is verified.
                Ok(Self::Bytes(Vec::new()))
            }
            Target::Writer(writer) => Ok(Self::Writer {
                writer,
                runtime: Handle::current(),
                stop,
            }),
        }
    }

    /// Whether it is a file, which takes what is written without anybody's help.
    pub(super) fn is_file(&self) -> bool {
        matches!(self, Self::File { .. })
    }

    /// Appends verified bytes; blocks.
    pub(super) fn write(&mut self, data: &[u8]) -> Result<(), DownloadError> {
        match self {
            Self::File {
                temporary, path, ..
            } => temporary
                .as_file_mut()
                .write_all(data)
                .map_err(|error| DownloadError::target(path, error)),
            Self::Pipe { file, path, stop } => write_pipe(file, data, path, stop),
            Self::Bytes(bytes) => {
                bytes.extend_from_slice(data);
                Ok(())
            }
            Self::Writer {
                writer,
                runtime,
                stop,
            } => runtime
                .block_on(stop.run_until_cancelled(writer.write_all(data)))
                .ok_or(DownloadError::Cancelled)?
                .map_err(|error| DownloadError::target(Path::new("-"), error)),
        }
    }

    /// Puts the file in its place, once every byte is verified; blocks.
    pub(super) fn publish(self) -> Result<Placed, DownloadError> {
        match self {
            Self::File {
                temporary,
                path,
                entry,
                options,
            } => publish(temporary, path, &entry, options),
            Self::Pipe { path, .. } => Ok(Placed {
                path: Some(path),
                ..Placed::default()
            }),
            Self::Bytes(bytes) => Ok(Placed {
                bytes,
                ..Placed::default()
            }),
            Self::Writer {
                mut writer,
                runtime,
                stop,
            } => {
                runtime
                    .block_on(stop.run_until_cancelled(writer.flush()))
                    .ok_or(DownloadError::Cancelled)?
                    .map_err(|error| DownloadError::target(Path::new("-"), error))?;
                Ok(Placed::default())
            }
        }
    }
}

fn open_path(
    path: PathBuf,
    source: &GuestPath,
    entry: GetEntry,
    options: PublishOptions,
    stop: CancellationToken,
) -> Result<OpenTarget, DownloadError> {
    let wants_folder = path.as_os_str().as_bytes().ends_with(b"/");
    let mut path = path;
    if path.is_dir() {
        let Some(name) = source.file_name() else {
            return Err(DownloadError::TargetIsDirectory { path });
        };
        path.push(OsStr::from_bytes(name));
    } else if wants_folder {
        return Err(DownloadError::TargetNotFound { path });
    }
    match fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => return Err(DownloadError::TargetIsDirectory { path }),
        Ok(_) if options.create_new => return Err(DownloadError::TargetExists { path }),
        Ok(meta) if !meta.is_file() => {
            let file = open_pipe(&path, &stop)?;
            return Ok(OpenTarget::Pipe { file, path, stop });
        }
        // A link of the host's own is followed to the file it stands for, as `cp` does.
        Ok(_) => {
            path = fs::canonicalize(&path).map_err(|error| DownloadError::target(&path, error))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(DownloadError::target(&path, error)),
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let temporary = tempfile::Builder::new()
        .prefix(".airlock-")
        .suffix(".part")
        .rand_bytes(10)
        .tempfile_in(folder)
        .map_err(|error| DownloadError::target(&path, error))?;
    Ok(OpenTarget::File {
        temporary,
        path,
        entry,
        options,
    })
}

/// Opens a pipe or a device. A pipe without a reader is waited for, until `stop`.
fn open_pipe(path: &Path, stop: &CancellationToken) -> Result<File, DownloadError> {
    let no_reader = Errno::NXIO.raw_os_error();
    loop {
        let mut options = OpenOptions::new();
        let nonblocking = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        match options.write(true).custom_flags(nonblocking).open(path) {
            Ok(file) => return Ok(file),
            Err(error) if error.raw_os_error() == Some(no_reader) && is_fifo(path) => {
                if stop.is_cancelled() {
                    return Err(DownloadError::Cancelled);
                }
                // Nothing tells when a reader opens a named pipe.
                std::thread::sleep(LOOK_INTERVAL);
            }
            Err(error) => return Err(DownloadError::target(path, error)),
        }
    }
}

fn is_fifo(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo())
}

/// Writes all of `data`, however slow the reader is, until `stop`.
fn write_pipe(
    file: &mut File,
    mut data: &[u8],
    path: &Path,
    stop: &CancellationToken,
) -> Result<(), DownloadError> {
    while !data.is_empty() {
        if stop.is_cancelled() {
            return Err(DownloadError::Cancelled);
        }
        match file.write(data) {
            Ok(0) => {
                let error = io::ErrorKind::WriteZero.into();
                return Err(DownloadError::target(path, error));
            }
            Ok(written) => data = &data[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let look = Timespec {
                    tv_sec: 0,
                    tv_nsec: i64::from(LOOK_INTERVAL.subsec_nanos()),
                };
                let mut room = [PollFd::new(&*file, PollFlags::OUT)];
                match poll(&mut room, Some(&look)) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(DownloadError::target(path, error.into())),
                }
            }
            Err(error) => return Err(DownloadError::target(path, error)),
        }
    }
    Ok(())
}

fn publish(
    temporary: NamedTempFile,
    path: PathBuf,
    entry: &GetEntry,
    options: PublishOptions,
) -> Result<Placed, DownloadError> {
    let failed = |error| DownloadError::target(&path, error);
    let old = fs::symlink_metadata(&path).ok();
    let file = temporary.as_file();
    // A hostile Space must not plant a program that runs with another user's rights.
    let mode = match &old {
        _ if options.keep_attributes => entry.mode & 0o777 & !umask(),
        Some(old) => old.permissions().mode() & 0o777,
        None => 0o666 & !umask(),
    };
    file.set_permissions(fs::Permissions::from_mode(mode))
        .map_err(failed)?;
    if options.keep_attributes {
        let second = 1_000_000_000;
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: entry.mtime_ns.div_euclid(second),
                tv_nsec: entry.mtime_ns.rem_euclid(second),
            },
        };
        // A time that this file system cannot keep is no reason to lose the file.
        let _ = rustix::fs::futimens(file, &times);
    }
    if options.fsync {
        file.sync_all().map_err(failed)?;
    }
    if options.create_new {
        temporary
            .persist_noclobber(&path)
            .map_err(|error| failed(error.error))?;
    } else {
        temporary
            .persist(&path)
            .map_err(|error| failed(error.error))?;
    }
    if options.fsync
        && let Some(folder) = path.parent()
    {
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(failed)?;
    }
    Ok(Placed {
        path: Some(path),
        replaced: old.is_some(),
        bytes: Vec::new(),
    })
}
