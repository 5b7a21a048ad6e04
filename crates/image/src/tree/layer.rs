//! Applies an archive to a tree: the whole root file system, or one layer of an image.
//!
//! Reads plain, gzip and zstd archives with GNU and PAX long names and GNU sparse files. Both
//! digests, that of the file and that of the archive inside, are computed on the way and compared
//! at the end: whoever called throws the tree away if they are wrong.
//!
//! Whiteouts are as the OCI image specification has them: `.wh.NAME` takes NAME away and
//! `.wh..wh..opq` all that the layers below have in that folder.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

use airlock_digest::FileHasher;
use tar::{Entry, EntryType};

use crate::tree::TreeError;
use crate::tree::path::TreePath;
use crate::tree::writer::{Meta, TreeWriter};

#[cfg(test)]
mod tests;

/// What one entry's headers may take; the reader holds long names in memory.
const HEADER_BYTES: u64 = 4 << 20;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const WHITEOUT: &[u8] = b".wh.";
const WHITEOUT_META: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// An archive on the disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layer<'a> {
    pub(crate) file: &'a Path,
    /// SHA-256 of the file, in hexadecimal.
    pub(crate) sha256: &'a str,
    /// SHA-256 of the archive without its compression, where that is known.
    pub(crate) diff_sha256: Option<&'a str>,
    /// Whether `.wh.` names are whiteouts; in an archive that is no layer they are names.
    pub(crate) has_whiteouts: bool,
}

impl Layer<'_> {
    /// Writes all that the archive has; `on_file` is told how many files there are so far.
    pub(crate) fn apply(
        self,
        writer: &mut TreeWriter<'_>,
        on_file: &dyn Fn(u64),
    ) -> Result<(), TreeError> {
        writer.begin_layer();
        let mut open = Opened::open(self.file)?;
        let mut archive = tar::Archive::new(open.gate()?);
        let unread = |source| self.unread(source);
        let mut entries = archive.entries().map_err(unread)?;
        loop {
            open.allowance.set(HEADER_BYTES);
            let Some(entry) = entries.next() else { break };
            let mut entry = entry.map_err(unread)?;
            open.allowance.set(u64::MAX);
            on_file(writer.files());
            self.entry(&mut entry, writer)?;
            // Whatever has content that nobody wants: the next header follows it.
            drain(&mut entry, writer).map_err(|error| self.drained(error))?;
        }
        open.allowance.set(u64::MAX);
        drain(&mut archive.into_inner(), writer).map_err(|error| self.drained(error))?;
        drain(&mut open.file, writer).map_err(|error| self.drained(error))?;
        self.compare(self.sha256, &open.digest())?;
        match self.diff_sha256 {
            Some(expected) => self.compare(expected, &open.diff_digest()),
            None => Ok(()),
        }
    }

    /// Fails unless the file begins like an archive of files, and not of layers.
    pub(crate) fn check(file: &Path) -> Result<(), TreeError> {
        let layer = Layer {
            file,
            sha256: "",
            diff_sha256: None,
            has_whiteouts: false,
        };
        let mut open = Opened::open(file)?;
        open.allowance.set(HEADER_BYTES);
        let mut archive = tar::Archive::new(open.gate()?);
        let mut entries = archive.entries().map_err(|error| layer.unread(error))?;
        let problem = match entries.next() {
            Some(Ok(entry)) if is_of_layers(&entry.path_bytes()) => {
                return Err(TreeError::Unsupported {
                    path: String::from_utf8_lossy(&entry.path_bytes()).into_owned(),
                    what: "saved images (docker save, OCI layouts)",
                });
            }
            Some(Ok(_)) => return Ok(()),
            Some(Err(error)) => error,
            None => io::Error::new(io::ErrorKind::UnexpectedEof, "it is empty"),
        };
        Err(layer.unread(problem))
    }

    fn entry<R: Read>(
        self,
        entry: &mut Entry<'_, R>,
        writer: &mut TreeWriter<'_>,
    ) -> Result<(), TreeError> {
        let unread = |source| self.unread(source);
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() {
            return Ok(());
        }
        let name = entry.path_bytes().into_owned();
        let path = TreePath::parse(&name)?;
        if self.has_whiteouts && whiteout(&path, writer)? {
            return Ok(());
        }
        let meta = meta_of(entry).map_err(unread)?;
        match kind {
            EntryType::Directory => writer.folder(&path, meta),
            // Archives older than the type field mark folders this way.
            EntryType::Regular if name.ends_with(b"/") => writer.folder(&path, meta),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                refuse_new_sparse(entry, &path, &unread)?;
                let bytes = entry.size();
                let written = writer.file(&path, meta, entry, &unread)?;
                if written == bytes {
                    Ok(())
                } else {
                    Err(unread(io::ErrorKind::UnexpectedEof.into()))
                }
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default();
                writer.link(&path, meta, OsStr::from_bytes(&target))
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().unwrap_or_default();
                let target = TreePath::parse(&target)?;
                if target == path {
                    return Ok(());
                }
                writer.hard_link(&path, &target)
            }
            EntryType::Fifo => writer.fifo(&path, meta),
            EntryType::Char | EntryType::Block => writer.skip(&path),
            // Labels and the like, which are no files.
            _ => Ok(()),
        }
    }

    fn unread(self, source: io::Error) -> TreeError {
        TreeError::Archive {
            file: self.file.to_owned(),
            source,
        }
    }

    fn drained(self, error: Drain) -> TreeError {
        match error {
            Drain::Cancelled(error) => error,
            Drain::Unread(source) => self.unread(source),
        }
    }

    fn compare(self, expected: &str, found: &str) -> Result<(), TreeError> {
        if expected == found {
            return Ok(());
        }
        Err(TreeError::Digest {
            file: self.file.display().to_string(),
            expected: expected.to_owned(),
            found: found.to_owned(),
        })
    }
}

/// Whether an archive that begins with this name is one of an image's layers: `blobs/`, or, as
/// older tools write it, a folder for each layer.
fn is_of_layers(name: &[u8]) -> bool {
    let first = name.split(|byte| *byte == b'/').next().unwrap_or_default();
    let is_layer = first.len() == 64 && first.iter().all(u8::is_ascii_hexdigit);
    is_layer || [&b"blobs"[..], b"oci-layout"].contains(&first)
}

/// Applies a whiteout; says whether the entry is one.
fn whiteout(path: &TreePath, writer: &mut TreeWriter<'_>) -> Result<bool, TreeError> {
    let Some((folder, name)) = path.split() else {
        return Ok(false);
    };
    let name = name.as_bytes();
    if name == OPAQUE {
        writer.hide_content(&folder)?;
    } else if name.starts_with(WHITEOUT_META) {
        // Notes of the file system that made the layer.
    } else if let Some(hidden) = name.strip_prefix(WHITEOUT) {
        writer.hide(&folder.child(hidden)?)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

fn meta_of<R: Read>(entry: &Entry<'_, R>) -> io::Result<Meta> {
    let header = entry.header();
    let old = header.as_old();
    // An id that no host has becomes one that is in no map.
    let id = |id: u64| u32::try_from(id).unwrap_or(u32::MAX - 1);
    Ok(Meta {
        mode: or_blank(header.mode(), &old.mode)? & 0o7777,
        uid: id(or_blank(header.uid(), &old.uid)?),
        gid: id(or_blank(header.gid(), &old.gid)?),
        modified: header
            .mtime()
            .ok()
            .and_then(|seconds| Some((i64::try_from(seconds).ok()?, 0))),
    })
}

/// A field that its writer left blank is 0, as other readers have it.
fn or_blank<T: Default>(value: io::Result<T>, field: &[u8]) -> io::Result<T> {
    if field.iter().all(|byte| matches!(byte, 0 | b' ')) {
        return Ok(T::default());
    }
    value
}

/// The newer form of sparse files hides their map in the content, where it would be taken for it.
fn refuse_new_sparse<R: Read>(
    entry: &mut Entry<'_, R>,
    path: &TreePath,
    unread: &dyn Fn(io::Error) -> TreeError,
) -> Result<(), TreeError> {
    for extension in entry
        .pax_extensions()
        .map_err(unread)?
        .into_iter()
        .flatten()
    {
        if extension
            .map_err(unread)?
            .key_bytes()
            .starts_with(b"GNU.sparse.")
        {
            return Err(TreeError::Unsupported {
                path: path.to_string(),
                what: "sparse files in the PAX format",
            });
        }
    }
    Ok(())
}

enum Drain {
    Cancelled(TreeError),
    Unread(io::Error),
}

fn drain(reader: &mut dyn Read, writer: &TreeWriter<'_>) -> Result<(), Drain> {
    let mut buffer = [0; 16 << 10];
    loop {
        writer.check_cancelled().map_err(Drain::Cancelled)?;
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Drain::Unread(error)),
        }
    }
}

/// An archive being read, with what is known of it so far.
struct Opened {
    file: Shared,
    hasher: Rc<RefCell<FileHasher>>,
    diff_hasher: Rc<RefCell<FileHasher>>,
    /// How many bytes the reader of entries may still take.
    allowance: Rc<Cell<u64>>,
}

impl Opened {
    fn open(file: &Path) -> Result<Self, TreeError> {
        let hasher = Rc::new(RefCell::new(FileHasher::new()));
        let file = File::open(file).map_err(|source| TreeError::Archive {
            file: file.to_owned(),
            source,
        })?;
        let reader = Hashed {
            inner: file,
            hasher: Rc::clone(&hasher),
        };
        Ok(Self {
            file: Shared(Rc::new(RefCell::new(BufReader::with_capacity(
                1 << 18,
                reader,
            )))),
            hasher,
            diff_hasher: Rc::new(RefCell::new(FileHasher::new())),
            allowance: Rc::new(Cell::new(u64::MAX)),
        })
    }

    /// The archive without its compression.
    fn gate(&mut self) -> Result<Gate, TreeError> {
        let plain: Box<dyn Read> = match self.compression()? {
            Compression::None => Box::new(self.file.clone()),
            Compression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(self.file.clone())),
            Compression::Zstd => Box::new(zstd::Decoder::new(self.file.clone())?),
        };
        let inner = Hashed {
            inner: plain,
            hasher: Rc::clone(&self.diff_hasher),
        };
        Ok(Gate {
            inner,
            allowance: Rc::clone(&self.allowance),
        })
    }

    fn compression(&mut self) -> io::Result<Compression> {
        let mut file = self.file.0.borrow_mut();
        let start = file.fill_buf()?;
        Ok(if start.starts_with(GZIP) {
            Compression::Gzip
        } else if start.starts_with(ZSTD) {
            Compression::Zstd
        } else {
            Compression::None
        })
    }

    fn digest(&self) -> String {
        self.hasher.take().finish().to_string()
    }

    fn diff_digest(&self) -> String {
        self.diff_hasher.take().finish().to_string()
    }
}

enum Compression {
    None,
    Gzip,
    Zstd,
}

/// Hashes all that is read.
struct Hashed<R> {
    inner: R,
    hasher: Rc<RefCell<FileHasher>>,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.inner.read(buffer)?;
        self.hasher.borrow_mut().update(&buffer[..bytes]);
        Ok(bytes)
    }
}

/// The file, so that its rest can be read after the decompressor is done with it.
#[derive(Clone)]
struct Shared(Rc<RefCell<BufReader<Hashed<File>>>>);

impl Read for Shared {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(buffer)
    }
}

/// Stops a reader that takes more than it is allowed.
struct Gate {
    inner: Hashed<Box<dyn Read>>,
    allowance: Rc<Cell<u64>>,
}

impl Read for Gate {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let allowed = self.allowance.get();
        if allowed == 0 && !buffer.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the headers of an entry are too long",
            ));
        }
        let most = usize::try_from(allowed).map_or(buffer.len(), |most| most.min(buffer.len()));
        let bytes = self.inner.read(&mut buffer[..most])?;
        self.allowance.set(allowed.saturating_sub(bytes as u64));
        Ok(bytes)
    }
}
