//! Files written: a header, then data, published whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;

use airlock_digest::FileHasher;
use airlock_wire::cua::v1::{
    EntryInfo, WriteFileHeader, WriteFileRequest, WriteMode, write_file_request,
};
use airlock_wire::{Fault, FaultKind};
use bytes::Bytes;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::{MAX_CHUNK_BYTES, View, blocking, entry, refuse};
use crate::paths::escape_path;
use crate::publish::{PendingFile, PublishOptions};
use crate::server::body::Integrity;

/// Messages between the connection and the disk.
const QUEUE: usize = 2;

/// A file that was written.
pub(super) struct Written {
    pub(super) entry: EntryInfo,
    /// Digest of what was sent, in lower-case hexadecimal digits.
    pub(super) sha256: String,
}

/// Receives a file from a stream of messages.
pub(super) async fn receive(
    view: &View,
    mut requests: Streaming<WriteFileRequest>,
    integrity: &Integrity,
) -> Result<Written, Status> {
    let first = requests
        .message()
        .await?
        .and_then(|request| request.message);
    let Some(write_file_request::Message::Header(header)) = first else {
        return Err(invalid("the first message must be a header").into());
    };
    let view = view.clone();
    let (sender, mut receiver) = mpsc::channel::<Bytes>(QUEUE);
    // One thread writes for the whole call; the channel's end, not its closing, publishes.
    let (finish, finished) = tokio::sync::oneshot::channel();
    let writing = blocking(move || {
        let mut writer = Writer::open(&view, &header)?;
        while let Some(data) = receiver.blocking_recv() {
            writer.write(&data)?;
        }
        match finished.blocking_recv() {
            Ok(()) => writer.publish(None),
            Err(_) => Err(Fault::new(FaultKind::Cancelled, "the upload was given up")),
        }
    });
    let feeding = async {
        while let Some(request) = requests.message().await? {
            let data = data_of(request)?;
            if sender.send(data).await.is_err() {
                // The writer has failed and says why.
                return Ok(());
            }
        }
        if integrity.is_broken() {
            return Err(Status::cancelled("the upload broke off"));
        }
        drop(sender);
        let _ = finish.send(());
        Ok::<(), Status>(())
    };
    let (fed, written) = tokio::join!(feeding, writing);
    match (fed, written) {
        (Err(status), _) => Err(status),
        (Ok(()), written) => Ok(written?),
    }
}

fn data_of(request: WriteFileRequest) -> Result<Bytes, Fault> {
    match request.message {
        Some(write_file_request::Message::Data(data)) => {
            check_chunk(data.len())?;
            Ok(data)
        }
        Some(write_file_request::Message::Header(_)) => Err(invalid("a second header was sent")),
        None => Ok(Bytes::new()),
    }
}

/// Refuses a piece that is larger than was promised.
pub(super) fn check_chunk(bytes: usize) -> Result<(), Fault> {
    if bytes <= MAX_CHUNK_BYTES {
        return Ok(());
    }
    let message = format!("a piece of {bytes} bytes came, at most {MAX_CHUNK_BYTES} are taken");
    Err(Fault::new(FaultKind::LimitExceeded, message))
}

/// Where data goes until all of it has arrived.
enum Target {
    /// Published by a rename.
    Pending(PendingFile),
    /// Appended in place; cut back to `old_bytes` when something is wrong.
    Append { file: File, old_bytes: u64 },
}

/// A file under way.
pub(super) struct Writer {
    path: PathBuf,
    target: Option<Target>,
    hasher: FileHasher,
    received: u64,
    expected_size: u64,
    expected_sha256: String,
}

impl Writer {
    /// Checks the header and opens the target.
    pub(super) fn open(view: &View, header: &WriteFileHeader) -> Result<Self, Fault> {
        refuse(&header.run_as, &header.xattr_namespace)?;
        if !header.metadata.is_empty() {
            return Err(crate::convert::unsupported("fs.xattr"));
        }
        let mode = WriteMode::try_from(header.mode)
            .map_err(|_| invalid(format!("there is no write mode {}", header.mode)))?;
        let path = view.resolve(&header.path)?;
        let options = PublishOptions {
            create_new: mode == WriteMode::CreateNew,
            mode: Some(header.permissions & 0o777).filter(|mode| *mode != 0),
            new_owner: view.new_owner,
            create_parents: header.create_parents,
            ..PublishOptions::default()
        };
        let target = match mode {
            WriteMode::Unspecified | WriteMode::Overwrite | WriteMode::CreateNew => {
                Target::Pending(PendingFile::create(&path, options)?)
            }
            WriteMode::Append => append_to(&path, options)?,
        };
        Ok(Self {
            path,
            target: Some(target),
            hasher: FileHasher::new(),
            received: 0,
            expected_size: header.expected_size,
            expected_sha256: header.expected_sha256.clone(),
        })
    }

    /// Bytes received so far.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Appends a piece.
    pub(super) fn write(&mut self, data: &[u8]) -> Result<(), Fault> {
        let written = match &mut self.target {
            Some(Target::Pending(pending)) => pending.file().write_all(data),
            Some(Target::Append { file, .. }) => file.write_all(data),
            None => unreachable!("the target is taken by the one that publishes"),
        };
        written.map_err(|error| Fault::from_io(escape_path(&self.path), &error))?;
        self.hasher.update(data);
        self.received += data.len() as u64;
        Ok(())
    }

    /// Compares with what was announced, then puts the file in its place.
    pub(super) fn publish(mut self, sha256: Option<&str>) -> Result<Written, Fault> {
        let actual = self.hasher.clone().finish().to_string();
        if self.expected_size != 0 && self.expected_size != self.received {
            let message = format!(
                "{}: {} bytes were announced, {} came",
                escape_path(&self.path),
                self.expected_size,
                self.received
            );
            return Err(invalid(message));
        }
        let expected = [sha256.unwrap_or_default(), &self.expected_sha256];
        for expected in expected.into_iter().filter(|expected| !expected.is_empty()) {
            if !expected.eq_ignore_ascii_case(&actual) {
                let message = format!(
                    "{}: SHA-256 {expected} was announced, {actual} came",
                    escape_path(&self.path)
                );
                return Err(Fault::new(FaultKind::ChecksumMismatch, message)
                    .with("expected_sha256", expected)
                    .with("actual_sha256", &actual));
            }
        }
        let path = match self.target.take() {
            Some(Target::Pending(pending)) => pending.publish()?.path,
            Some(Target::Append { .. }) | None => self.path.clone(),
        };
        Ok(Written {
            entry: entry::stat(&path, true)?,
            sha256: actual,
        })
    }
}

impl Drop for Writer {
    /// Takes back what was appended, when it was not all or not right.
    fn drop(&mut self) {
        if let Some(Target::Append { file, old_bytes }) = &self.target {
            let ours = old_bytes + self.received;
            // Somebody else has appended too: then cutting would cut theirs.
            if file.metadata().is_ok_and(|metadata| metadata.len() <= ours) {
                let _ = file.set_len(*old_bytes);
            }
        }
    }
}

fn append_to(path: &std::path::Path, options: PublishOptions) -> Result<Target, Fault> {
    let at = |error: io::Error| Fault::from_io(escape_path(path), &error);
    let open = || OpenOptions::new().append(true).open(path);
    let file = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // An empty file with the right mode and owner; losing a race for it is no loss.
            let options = PublishOptions {
                create_new: true,
                ..options
            };
            match PendingFile::create(path, options).and_then(PendingFile::publish) {
                Ok(_) | Err(crate::publish::PublishError::Exists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            open().map_err(at)?
        }
        opened => opened.map_err(at)?,
    };
    let metadata = file.metadata().map_err(at)?;
    if !metadata.is_file() {
        return Err(invalid(format!(
            "{} is not a regular file",
            escape_path(path)
        )));
    }
    Ok(Target::Append {
        old_bytes: metadata.len(),
        file,
    })
}

fn invalid(message: impl Into<String>) -> Fault {
    Fault::new(FaultKind::InvalidArgument, message)
}
