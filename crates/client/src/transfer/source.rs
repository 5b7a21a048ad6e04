//! Where the bytes of an upload come from.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use airlock_model::size::INLINE_MAX_BYTES;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::UploadError;

/// What to upload. It is read once, from the start to the end.
pub enum Source {
    /// A file of the host, or a pipe that has a name.
    Path(PathBuf),
    /// Bytes in memory.
    Bytes(Bytes),
    /// A stream of unknown length.
    Reader(Box<dyn AsyncRead + Send + Unpin>),
}

impl Source {
    /// A stream of unknown length.
    pub fn reader(reader: impl AsyncRead + Send + Unpin + 'static) -> Self {
        Self::Reader(Box::new(reader))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.debug_tuple("Path").field(path).finish(),
            Self::Bytes(bytes) => f.debug_tuple("Bytes").field(&bytes.len()).finish(),
            Self::Reader(_) => f.write_str("Reader"),
        }
    }
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Self {
        Self::Path(path.to_owned())
    }
}

impl From<PathBuf> for Source {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl From<&str> for Source {
    fn from(path: &str) -> Self {
        Self::Path(path.into())
    }
}

impl From<Bytes> for Source {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Vec<u8>> for Source {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

/// A source that is being read.
pub(super) struct OpenSource {
    input: Input,
    /// Read ahead to find out whether the source is small.
    head: Bytes,
    offset: u64,
    /// Bytes in it, where that is known beforehand.
    size: Option<u64>,
    buffer: Vec<u8>,
}

enum Input {
    File {
        file: File,
        path: PathBuf,
        meta: std::fs::Metadata,
    },
    /// A pipe or a device with a name, or a file that does not know its size.
    Pipe {
        file: File,
        path: PathBuf,
    },
    Bytes(Bytes),
    Reader {
        reader: Box<dyn AsyncRead + Send + Unpin>,
        runtime: Handle,
        stop: CancellationToken,
    },
}

/// What an upload takes over from the source file.
#[derive(Debug, Clone, Default)]
pub(super) struct Attributes {
    pub(super) mode: Option<u32>,
    pub(super) mtime_ns: Option<i64>,
    pub(super) name: Option<Vec<u8>>,
}

impl OpenSource {
    /// Opens the source; blocks, also for the first bytes of a stream.
    pub(super) fn open(source: Source, stop: CancellationToken) -> Result<Self, UploadError> {
        let input = match source {
            Source::Path(path) => open_file(path)?,
            Source::Bytes(bytes) => Input::Bytes(bytes),
            Source::Reader(reader) => Input::Reader {
                reader,
                runtime: Handle::current(),
                stop,
            },
        };
        let size = match &input {
            Input::File { meta, .. } => Some(meta.len()),
            Input::Bytes(bytes) => Some(bytes.len() as u64),
            Input::Pipe { .. } | Input::Reader { .. } => None,
        };
        let mut open = Self {
            input,
            head: Bytes::new(),
            offset: 0,
            size,
            buffer: Vec::new(),
        };
        if open.size.is_none() {
            let head = Bytes::copy_from_slice(open.next(INLINE_MAX_BYTES + 1)?);
            if head.len() <= INLINE_MAX_BYTES {
                // It is over already, so it is as good as bytes in memory.
                open.input = Input::Bytes(head.clone());
                open.size = Some(head.len() as u64);
            } else {
                open.head = head;
            }
            open.offset = 0;
        }
        Ok(open)
    }

    pub(super) fn size(&self) -> Option<u64> {
        self.size
    }

    /// Whether the whole source fits into one message.
    pub(super) fn is_small(&self) -> bool {
        self.size
            .is_some_and(|size| size <= INLINE_MAX_BYTES as u64)
    }

    /// Bytes read until now.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn attributes(&self) -> Attributes {
        match &self.input {
            Input::File { path, meta, .. } => Attributes {
                mode: Some(meta.mode() & 0o777),
                mtime_ns: Some(mtime_ns(meta)),
                name: path.file_name().map(|name| name.as_bytes().to_vec()),
            },
            Input::Pipe { .. } | Input::Bytes(_) | Input::Reader { .. } => Attributes::default(),
        }
    }

    /// The next bytes, as many as `most` but at the end; none after it. Blocks.
    pub(super) fn next(&mut self, most: usize) -> Result<&[u8], UploadError> {
        if matches!(self.input, Input::Bytes(_)) {
            return Ok(self.next_in_memory(most));
        }
        let from = self.offset;
        if self.buffer.len() < most {
            self.buffer.resize(most, 0);
        }
        let head = self.head.split_to(most.min(self.head.len()));
        self.buffer[..head.len()].copy_from_slice(&head);
        let mut filled = head.len();
        while filled < most {
            let room = &mut self.buffer[filled..most];
            let read = match &mut self.input {
                Input::File { file, path, meta } => {
                    // Bytes past the size it had are noticed in the end, not read.
                    let left = meta.len().saturating_sub(from + filled as u64);
                    let room_len = room.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    if room_len == 0 {
                        break;
                    }
                    match retry(|| file.read_at(&mut room[..room_len], from + filled as u64)) {
                        Ok(0) => return Err(UploadError::SourceChanged { path: path.clone() }),
                        other => other.map_err(|error| UploadError::source(path, error))?,
                    }
                }
                Input::Pipe { file, path } => {
                    retry(|| file.read(room)).map_err(|error| UploadError::source(path, error))?
                }
                Input::Bytes(_) => 0,
                Input::Reader {
                    reader,
                    runtime,
                    stop,
                } => {
                    let read = runtime.block_on(stop.run_until_cancelled(reader.read(room)));
                    read.ok_or(UploadError::Cancelled)?
                        .map_err(|error| UploadError::source(Path::new("-"), error))?
                }
            };
            if read == 0 {
                break;
            }
            filled += read;
        }
        self.offset += filled as u64;
        Ok(&self.buffer[..filled])
    }

    fn next_in_memory(&mut self, most: usize) -> &[u8] {
        let Input::Bytes(bytes) = &self.input else {
            return &[];
        };
        let start =
            usize::try_from(self.offset).map_or(bytes.len(), |start| start.min(bytes.len()));
        let end = start.saturating_add(most).min(bytes.len());
        self.offset = end as u64;
        &bytes[start..end]
    }

    /// Whether bytes that were read can be had again by [`again`](Self::again).
    pub(super) fn can_repeat(&self) -> bool {
        matches!(self.input, Input::File { .. } | Input::Bytes(_))
    }

    /// Bytes that were read before, for a part that arrived damaged.
    pub(super) fn again(&self, offset: u64, bytes: usize) -> Result<Bytes, UploadError> {
        match &self.input {
            Input::Bytes(all) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                Ok(all.slice(start..start + bytes))
            }
            Input::File { file, path, .. } => {
                let mut buffer = vec![0; bytes];
                match file.read_exact_at(&mut buffer, offset) {
                    Ok(()) => Ok(buffer.into()),
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        Err(self.changed())
                    }
                    Err(error) => Err(UploadError::source(path, error)),
                }
            }
            // Streams keep what is under way.
            Input::Pipe { .. } | Input::Reader { .. } => Err(self.changed()),
        }
    }

    /// Fails when a file is not as it was when it was opened.
    pub(super) fn check_unchanged(&self) -> Result<(), UploadError> {
        let Input::File { file, path, meta } = &self.input else {
            return Ok(());
        };
        let now = file
            .metadata()
            .map_err(|error| UploadError::source(path, error))?;
        if now.len() == meta.len() && mtime_ns(&now) == mtime_ns(meta) {
            Ok(())
        } else {
            Err(self.changed())
        }
    }

    /// The error for a source that changed while it was read.
    pub(super) fn changed(&self) -> UploadError {
        let path = match &self.input {
            Input::File { path, .. } | Input::Pipe { path, .. } => path.clone(),
            Input::Bytes(_) | Input::Reader { .. } => PathBuf::from("-"),
        };
        UploadError::SourceChanged { path }
    }
}

fn open_file(path: PathBuf) -> Result<Input, UploadError> {
    let failed = |error| UploadError::source(&path, error);
    let file = File::open(&path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if meta.is_dir() {
        return Err(UploadError::SourceIsDirectory { path });
    }
    // Files of /proc and /sys have no size before they are read.
    if meta.is_file() && (meta.len() > 0 || !has_bytes(&file)) {
        return Ok(Input::File { file, path, meta });
    }
    Ok(Input::Pipe { file, path })
}

/// Whether a file that says it is empty has bytes after all.
fn has_bytes(file: &File) -> bool {
    file.read_at(&mut [0], 0).is_ok_and(|read| read > 0)
}

fn mtime_ns(meta: &std::fs::Metadata) -> i64 {
    meta.mtime()
        .saturating_mul(1_000_000_000)
        .saturating_add(meta.mtime_nsec())
}

fn retry(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
