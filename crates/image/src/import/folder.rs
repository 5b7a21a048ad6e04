//! Images from a folder that holds a root file system.
//!
//! The folder becomes one archive. Owners are taken as they are, but what belongs to an ordinary
//! user who imports belongs to root in the image: such a user cannot have made it otherwise.
//! Nothing on another file system mounted below is taken.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use airlock_digest::FileHasher;
use fs_err as fs;
use rustix::fs::OFlags;
use rustix::process::{getegid, geteuid};
use tar::{Builder, EntryType, Header};
use tokio_util::sync::CancellationToken;

use crate::host::is_root;
use crate::import::{ImportError, LayerPiece};
use crate::manifest::sha256_of_file;

/// The fastest level: the archive is read back at once, and often for the last time.
const LEVEL: i32 = 1;

/// Packs the folder into the archive `file`; the second digest of the layer tells the content.
///
/// `left_out` is a folder that is not taken though it may be inside: Airlock's own.
pub(crate) fn pack(
    folder: &Path,
    left_out: &Path,
    file: &Path,
    on_file: &dyn Fn(u64),
    cancel: &CancellationToken,
) -> Result<LayerPiece, ImportError> {
    let meta = std::fs::metadata(folder).map_err(|source| ImportError::Read {
        path: folder.to_owned(),
        source,
    })?;
    if !meta.is_dir() {
        return Err(ImportError::NotAFolder {
            path: folder.to_owned(),
        });
    }
    let encoder = zstd::Encoder::new(fs::File::create(file)?, LEVEL)?;
    let mut packer = Packer {
        archive: Builder::new(Hashed {
            inner: encoder,
            hasher: FileHasher::new(),
        }),
        device: meta.dev(),
        left_out: std::fs::metadata(left_out)
            .ok()
            .map(|meta| (meta.dev(), meta.ino())),
        names: BTreeMap::new(),
        files: 0,
        on_file,
        cancel,
    };
    packer.entry(folder, Path::new("./"))?;
    let hashed = packer.archive.into_inner()?;
    let output = hashed.inner.finish()?;
    let bytes = output.metadata()?.len();
    let diff_sha256 = hashed.hasher.finish().to_string();
    let sha256 = sha256_of_file(file, &mut |_| {
        if cancel.is_cancelled() {
            Err(ImportError::Cancelled)
        } else {
            Ok(())
        }
    })?;
    Ok(LayerPiece::new(
        sha256.to_string(),
        bytes,
        Some(diff_sha256),
    ))
}

struct Packer<'a> {
    archive: Builder<Hashed<zstd::Encoder<'static, fs::File>>>,
    device: u64,
    left_out: Option<(u64, u64)>,
    /// The first name of every file that has several, by its device and number.
    names: BTreeMap<(u64, u64), PathBuf>,
    files: u64,
    on_file: &'a dyn Fn(u64),
    cancel: &'a CancellationToken,
}

impl Packer<'_> {
    fn entry(&mut self, path: &Path, name: &Path) -> Result<(), ImportError> {
        if self.cancel.is_cancelled() {
            return Err(ImportError::Cancelled);
        }
        self.files += 1;
        (self.on_file)(self.files);
        let unread = |source| ImportError::Read {
            path: path.to_owned(),
            source,
        };
        let meta = std::fs::symlink_metadata(path).map_err(unread)?;
        let kind = meta.file_type();
        let mut header = header_of(&meta);
        if kind.is_dir() {
            header.set_entry_type(EntryType::Directory);
            self.archive.append_data(&mut header, name, io::empty())?;
            let is_ours = Some((meta.dev(), meta.ino())) == self.left_out;
            if meta.dev() == self.device && !is_ours {
                self.folder(path, name)?;
            }
            return Ok(());
        }
        let place = (meta.dev(), meta.ino());
        if meta.nlink() > 1 {
            if let Some(first) = self.names.get(&place) {
                header.set_entry_type(EntryType::Link);
                self.archive.append_link(&mut header, name, first)?;
                return Ok(());
            }
            self.names.insert(place, name.to_owned());
        }
        if kind.is_symlink() {
            header.set_entry_type(EntryType::Symlink);
            let target = std::fs::read_link(path).map_err(unread)?;
            self.archive.append_link(&mut header, name, target)?;
        } else if kind.is_file() {
            let file = std::fs::OpenOptions::new()
                .read(true)
                .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
                .open(path)
                .map_err(unread)?;
            header.set_entry_type(EntryType::Regular);
            header.set_size(meta.len());
            let mut content = Exact {
                inner: file.take(meta.len()),
                missing: meta.len(),
            };
            self.archive
                .append_data(&mut header, name, &mut content)
                .map_err(|error| {
                    if error.kind() == io::ErrorKind::UnexpectedEof {
                        let path = path.to_owned();
                        ImportError::Changed { path }
                    } else {
                        ImportError::Io(error)
                    }
                })?;
        } else if kind.is_fifo() {
            header.set_entry_type(EntryType::Fifo);
            self.archive.append_data(&mut header, name, io::empty())?;
        }
        // Sockets mean nothing without their process, and a Space has its own devices.
        Ok(())
    }

    fn folder(&mut self, path: &Path, name: &Path) -> Result<(), ImportError> {
        let unread = |source| ImportError::Read {
            path: path.to_owned(),
            source,
        };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path).map_err(unread)? {
            names.push(entry.map_err(unread)?.file_name());
        }
        // In order, so that the same folder gives the same archive.
        names.sort();
        for inner in names {
            self.entry(&path.join(&inner), &name.join(&inner))?;
        }
        Ok(())
    }
}

fn header_of(meta: &std::fs::Metadata) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(meta.mode() & 0o7777);
    header.set_mtime(u64::try_from(meta.mtime()).unwrap_or(0));
    header.set_size(0);
    let (uid, gid) = if is_root() {
        (meta.uid(), meta.gid())
    } else {
        let own = |id, caller| if id == caller { 0 } else { id };
        (
            own(meta.uid(), geteuid().as_raw()),
            own(meta.gid(), getegid().as_raw()),
        )
    };
    header.set_uid(uid.into());
    header.set_gid(gid.into());
    header
}

/// Fails where the content is shorter than it was said to be: the archive would be mangled.
struct Exact<R> {
    inner: R,
    missing: u64,
}

impl<R: Read> Read for Exact<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.inner.read(buffer)?;
        if bytes == 0 && self.missing > 0 && !buffer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.missing -= bytes as u64;
        Ok(bytes)
    }
}

struct Hashed<W> {
    inner: W,
    hasher: FileHasher,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let bytes = self.inner.write(buffer)?;
        self.hasher.update(&buffer[..bytes]);
        Ok(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
