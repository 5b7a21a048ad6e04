//! Locks and build folders under `cache/`.
//!
//! A build works in a folder `cache/build-XXXXXX` that holds a locked file. The kernel drops the
//! lock when the builder dies, however it dies; so a folder whose lock can be taken is stale and
//! is swept by the next build. Nothing reads an image or a part out of such a folder.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs_err as fs;
use rustix::fs::{FlockOperation, flock};
use tokio_util::sync::CancellationToken;

use crate::error::BuildError;

const PREFIX: &str = "build-";
const LOCK_FILE: &str = "lock";

/// How often a waiting builder looks whether it was cancelled; a lock has no other way to tell.
const LOCK_CHECK: Duration = Duration::from_millis(50);

/// How long a killed process may take to vanish.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// An exclusive lock on a file, held until dropped.
#[derive(Debug)]
pub(crate) struct FileLock {
    _file: File,
}

impl FileLock {
    /// Takes the lock if nobody holds it.
    pub(crate) fn try_take(path: &Path) -> io::Result<Option<Self>> {
        let file = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?
            .into_parts()
            .0;
        match flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits for the lock; calls `on_wait` once if it is held by somebody else.
    pub(crate) fn take(
        path: &Path,
        cancel: &CancellationToken,
        on_wait: impl FnOnce(),
    ) -> Result<Self, BuildError> {
        let mut on_wait = Some(on_wait);
        loop {
            if let Some(lock) = Self::try_take(path)? {
                return Ok(lock);
            }
            if cancel.is_cancelled() {
                return Err(BuildError::Cancelled);
            }
            if let Some(on_wait) = on_wait.take() {
                on_wait();
            }
            std::thread::sleep(LOCK_CHECK);
        }
    }
}

/// A build folder, removed when dropped.
#[derive(Debug)]
pub(crate) struct BuildDir {
    path: PathBuf,
    _lock: FileLock,
}

impl BuildDir {
    /// Makes a locked folder in `cache`, after sweeping the stale ones.
    pub(crate) fn make(cache: &Path, cancel: &CancellationToken) -> Result<Self, BuildError> {
        // Held while a folder has no lock yet, so that no sweep takes it for a stale one.
        let gate = FileLock::take(&cache.join("builds.lock"), cancel, || {})?;
        sweep_locked(cache)?;
        let path = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(cache)?
            .keep();
        let lock = FileLock::try_take(&path.join(LOCK_FILE))?;
        drop(gate);
        let lock = lock.ok_or_else(|| io::Error::from(io::ErrorKind::ResourceBusy))?;
        Ok(Self { path, _lock: lock })
    }

    /// A new empty folder in it.
    pub(crate) fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir(&path)?;
        Ok(path)
    }
}

impl Drop for BuildDir {
    fn drop(&mut self) {
        if let Err(error) = remove_busy_tree(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a build folder stays behind");
        }
    }
}

/// Removes what dead builds left; returns the folders that it removed.
pub(crate) fn sweep(cache: &Path) -> io::Result<Vec<PathBuf>> {
    if !cache.exists() {
        return Ok(Vec::new());
    }
    match FileLock::try_take(&cache.join("builds.lock"))? {
        Some(_gate) => sweep_locked(cache),
        // Whoever holds it sweeps.
        None => Ok(Vec::new()),
    }
}

fn sweep_locked(cache: &Path) -> io::Result<Vec<PathBuf>> {
    let mut swept = Vec::new();
    for entry in fs::read_dir(cache)? {
        let entry = entry?;
        let is_build = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(PREFIX.as_bytes());
        if !is_build || !entry.file_type()?.is_dir() {
            continue;
        }
        let path = entry.path();
        if let Some(_lock) = FileLock::try_take(&path.join(LOCK_FILE))? {
            match remove_tree(&path) {
                Ok(()) => swept.push(path),
                Err(error) => tracing::warn!(path = %path.display(), %error, "cannot sweep"),
            }
        }
    }
    Ok(swept)
}

/// Removes a folder in which a process that was just killed may still end its last write.
fn remove_busy_tree(path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match remove_tree(path) {
            Err(error)
                if error.kind() == io::ErrorKind::DirectoryNotEmpty
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(LOCK_CHECK);
            }
            outcome => return outcome,
        }
    }
}

/// Removes a folder and all in it, but nothing on another file system that is mounted below.
///
/// The tool that fills a root file system mounts the host's `/dev` in it; such a mount must never
/// be emptied, whatever state a killed build leaves.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !meta.is_dir() {
        return fs::remove_file(path);
    }
    refuse_mounts(path, meta.dev())?;
    fs::remove_dir_all(path)
}

fn refuse_mounts(folder: &Path, device: u64) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.dev() != device {
            let message = format!("{} is a mount point", entry.path().display());
            return Err(io::Error::new(io::ErrorKind::CrossesDevices, message));
        }
        if meta.is_dir() {
            refuse_mounts(&entry.path(), device)?;
        }
    }
    Ok(())
}

/// Makes the folder's entries safe against a power cut.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}
