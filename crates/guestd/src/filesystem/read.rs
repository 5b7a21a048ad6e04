//! Files read: entry, chunks in order, end.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use airlock_digest::FileHasher;
use airlock_model::size::NETWORK_CHUNK_BYTES;
use airlock_wire::cua::v1::{
    EntryInfo, FileChunk, ReadFileEnd, ReadFileRequest, ReadFileResponse, read_file_response,
};
use airlock_wire::{Fault, FaultKind};
use bytes::Bytes;
use rustix::fs::OFlags;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::MAX_CHUNK_BYTES;
use super::entry::describe;
use crate::paths::escape_path;
use crate::users::Users;

/// Chunks read ahead of the connection.
const READ_AHEAD: usize = 2;

/// A range of an open file.
pub(super) struct FileRange {
    file: File,
    path: PathBuf,
    metadata: Metadata,
    entry: EntryInfo,
    offset: u64,
    /// Bytes wanted, at most.
    length: u64,
    chunk_bytes: usize,
    hasher: Option<FileHasher>,
}

impl FileRange {
    /// Opens a regular file; a pipe or a device would never end.
    pub(super) fn open(path: &Path, request: &ReadFileRequest) -> Result<Self, Fault> {
        let at = |error| Fault::from_io(escape_path(path), &error);
        let mut options = OpenOptions::new();
        // A pipe without a writer must not hold the thread.
        options
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = options.open(path).map_err(at)?;
        let metadata = file.metadata().map_err(at)?;
        if metadata.is_dir() {
            return Err(at(io::ErrorKind::IsADirectory.into()));
        }
        if !metadata.is_file() {
            let message = format!("{} is not a regular file", escape_path(path));
            return Err(Fault::new(FaultKind::InvalidArgument, message));
        }
        Ok(Self {
            entry: describe(path, &metadata, &Users::load().names()),
            file,
            path: path.to_owned(),
            offset: request.offset,
            length: if request.length == 0 {
                u64::MAX
            } else {
                request.length
            },
            chunk_bytes: match request.chunk_size as usize {
                0 => NETWORK_CHUNK_BYTES,
                size => size.min(MAX_CHUNK_BYTES),
            },
            hasher: request.compute_sha256.then(FileHasher::new),
            metadata,
        })
    }

    /// The messages of the call. One thread reads for as long as somebody takes them.
    pub(super) fn stream(self) -> impl Stream<Item = Result<ReadFileResponse, Status>> + use<> {
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        tokio::task::spawn_blocking(move || {
            let last = self.send(&sender);
            if let Some(Err(fault)) = last.transpose() {
                // Whoever has hung up does not want to know.
                let _ = sender.blocking_send(Err(fault.into()));
            }
        });
        ReceiverStream::new(receiver)
    }

    /// Sends everything; nothing when the receiver is gone.
    fn send(
        mut self,
        sender: &mpsc::Sender<Result<ReadFileResponse, Status>>,
    ) -> Result<Option<()>, Fault> {
        let put = |message| {
            let response = ReadFileResponse {
                message: Some(message),
            };
            sender.blocking_send(Ok(response)).ok()
        };
        let entry = std::mem::take(&mut self.entry);
        if put(read_file_response::Message::Entry(entry)).is_none() {
            return Ok(None);
        }
        let mut bytes_read = 0;
        while let Some(data) = self.next_chunk(bytes_read)? {
            let offset = self.offset + bytes_read;
            bytes_read += data.len() as u64;
            let chunk = FileChunk { offset, data };
            if put(read_file_response::Message::Chunk(chunk)).is_none() {
                return Ok(None);
            }
        }
        self.check_unchanged(bytes_read)?;
        let sha256 = self.hasher.map(|hasher| hasher.finish().to_string());
        let end = ReadFileEnd {
            bytes_read,
            sha256: sha256.unwrap_or_default(),
        };
        Ok(put(read_file_response::Message::End(end)))
    }

    fn next_chunk(&mut self, bytes_read: u64) -> Result<Option<Bytes>, Fault> {
        let left = self.expected().map_or(self.length, |expected| expected) - bytes_read;
        let wanted = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(self.chunk_bytes);
        if wanted == 0 {
            return Ok(None);
        }
        let mut data = vec![0; wanted];
        let mut filled = 0;
        while filled < wanted {
            let at = self.offset + bytes_read + filled as u64;
            match self.file.read_at(&mut data[filled..], at) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::from_io(escape_path(&self.path), &error)),
            }
        }
        if filled == 0 {
            return Ok(None);
        }
        data.truncate(filled);
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&data);
        }
        Ok(Some(data.into()))
    }

    /// Bytes that the range has by the file's size. Files of the kernel (`/proc`) have no size
    /// and are read to their end instead.
    fn expected(&self) -> Option<u64> {
        let size = self.metadata.size();
        (size > 0).then(|| size.saturating_sub(self.offset).min(self.length))
    }

    /// A file that was written meanwhile may be a mixture of old and new.
    fn check_unchanged(&self, bytes_read: u64) -> Result<(), Fault> {
        let Some(expected) = self.expected() else {
            return Ok(());
        };
        let now = self
            .file
            .metadata()
            .map_err(|error| Fault::from_io(escape_path(&self.path), &error))?;
        let version =
            |metadata: &Metadata| (metadata.size(), metadata.mtime(), metadata.mtime_nsec());
        if bytes_read == expected && version(&now) == version(&self.metadata) {
            return Ok(());
        }
        let message = format!("{} changed while it was read", escape_path(&self.path));
        Err(Fault::new(FaultKind::SourceChanged, message))
    }
}
