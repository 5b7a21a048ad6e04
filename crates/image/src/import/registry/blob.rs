//! Fetches one blob: resumed, verified, once.
//!
//! A blob grows as `sha256-….part`, which stays locked while somebody writes to it, and becomes
//! `sha256-…` by a rename after its digest was compared.

use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use airlock_digest::FileHasher;
use fs_err as fs;
use oci_client::client::BlobResponse;
use oci_client::{Client, Reference};
use tokio_stream::StreamExt as _;
use tokio_util::sync::CancellationToken;

use crate::import::ImportError;
use crate::import::registry::registry_error;
use crate::import::registry::spec::Descriptor;
use crate::manifest::sha256_of_file;
use crate::workdir::{FileLock, sync_folder};

/// How often a download that made no progress is tried again.
const FRUITLESS_TRIES: u32 = 2;

/// Left free on the disk.
const RESERVE_BYTES: u64 = 64 << 20;

/// One download.
pub(super) struct Fetch<'a> {
    pub(super) client: &'a Client,
    pub(super) reference: &'a Reference,
    pub(super) folder: &'a Path,
    /// Told how much of the blob is there.
    pub(super) on_bytes: &'a dyn Fn(u64),
    pub(super) cancel: &'a CancellationToken,
}

impl Fetch<'_> {
    /// Gives the file with the blob.
    pub(super) async fn blob(&self, wanted: &Descriptor) -> Result<PathBuf, ImportError> {
        let digits =
            Descriptor::sha256_of(&wanted.digest).ok_or_else(|| ImportError::NotAnImage {
                reference: self.reference.to_string(),
                problem: format!("{:?} is no SHA-256", wanted.digest),
            })?;
        let file = self.folder.join(format!("sha256-{digits}"));
        let is_there =
            || fs::metadata(&file).is_ok_and(|meta| meta.is_file() && meta.len() == wanted.size);
        // Blobs are links to the layers of images, which may have been damaged since.
        if is_there() && self.is_right(&file, digits)? {
            (self.on_bytes)(wanted.size);
            return Ok(file);
        }
        let part_path = self.folder.join(format!("sha256-{digits}.part"));
        let _lock = FileLock::take(&part_path, self.cancel, || {})?;
        if is_there() && self.is_right(&file, digits)? {
            // Whoever had the lock has made it; this is a new empty part.
            crate::builder::remove_if_there(&part_path)?;
            return Ok(file);
        }
        self.download(wanted, &part_path).await?;
        fs::rename(&part_path, &file)?;
        sync_folder(self.folder)?;
        Ok(file)
    }

    fn is_right(&self, file: &Path, digits: &str) -> Result<bool, ImportError> {
        let found = sha256_of_file(file, &mut |_| {
            if self.cancel.is_cancelled() {
                Err(ImportError::Cancelled)
            } else {
                Ok(())
            }
        })?;
        Ok(found.to_string() == digits)
    }

    async fn download(&self, wanted: &Descriptor, path: &Path) -> Result<(), ImportError> {
        let mut fruitless = 0;
        loop {
            let mut part = Part::open(path, wanted.size, self.cancel)?;
            let before = part.bytes;
            self.check_space(wanted.size - before)?;
            let outcome = self.fill(wanted, &mut part).await;
            part.file.sync_all()?;
            match outcome {
                Ok(()) => {
                    let found = format!("sha256:{}", part.hasher.finish());
                    if found == wanted.digest {
                        return Ok(());
                    }
                    part.file.set_len(0)?;
                    // What was there from another time may have been wrong, not what came now.
                    if before == 0 {
                        return Err(ImportError::Digest {
                            what: "a blob".to_owned(),
                            expected: wanted.digest.clone(),
                            found,
                        });
                    }
                }
                Err(ImportError::Interrupted { .. }) if part.bytes > before => fruitless = 0,
                Err(error) => {
                    fruitless += 1;
                    if !error.is_network() || fruitless > FRUITLESS_TRIES {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Asks for what is missing and writes it.
    async fn fill(&self, wanted: &Descriptor, part: &mut Part) -> Result<(), ImportError> {
        (self.on_bytes)(part.bytes);
        if part.bytes == wanted.size {
            return Ok(());
        }
        let digest = wanted.digest.as_str();
        let answer = self
            .client
            .pull_blob_stream_partial(self.reference, digest, part.bytes, None)
            .await
            .map_err(|source| registry_error(self.reference, source))?;
        let mut stream = match answer {
            BlobResponse::Partial(stream) => stream,
            BlobResponse::Full(stream) => {
                // The registry cannot resume.
                part.restart()?;
                stream
            }
        };
        while part.bytes < wanted.size {
            let piece = match stream.next().await {
                Some(Ok(piece)) => piece,
                Some(Err(error)) => return Err(interrupted(wanted, error)),
                None => return Err(interrupted(wanted, io::ErrorKind::UnexpectedEof.into())),
            };
            // A blob is as long as the manifest says; more would fill the disk for nothing.
            let room = usize::try_from(wanted.size - part.bytes).unwrap_or(usize::MAX);
            part.append(&piece[..piece.len().min(room)])?;
            (self.on_bytes)(part.bytes);
        }
        Ok(())
    }

    fn check_space(&self, bytes: u64) -> Result<(), ImportError> {
        let disk = rustix::fs::statvfs(self.folder).map_err(io::Error::from)?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < bytes.saturating_add(RESERVE_BYTES) {
            return Err(io::Error::from(io::ErrorKind::StorageFull).into());
        }
        Ok(())
    }
}

fn interrupted(wanted: &Descriptor, source: io::Error) -> ImportError {
    ImportError::Interrupted {
        what: wanted.digest.clone(),
        source,
    }
}

/// What is there of a blob.
struct Part {
    file: fs::File,
    bytes: u64,
    hasher: FileHasher,
}

impl Part {
    fn open(path: &Path, most: u64, cancel: &CancellationToken) -> Result<Self, ImportError> {
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        let mut part = Self {
            file,
            bytes: 0,
            hasher: FileHasher::new(),
        };
        let mut buffer = vec![0; 1 << 20];
        loop {
            if cancel.is_cancelled() {
                return Err(ImportError::Cancelled);
            }
            let bytes = part.file.read(&mut buffer)?;
            if bytes == 0 {
                break;
            }
            part.hasher.update(&buffer[..bytes]);
            part.bytes += bytes as u64;
        }
        if part.bytes > most {
            part.restart()?;
        }
        Ok(part)
    }

    fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.bytes = 0;
        self.hasher = FileHasher::new();
        Ok(())
    }

    fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        self.file.write_all(piece)?;
        self.hasher.update(piece);
        self.bytes += piece.len() as u64;
        Ok(())
    }
}
