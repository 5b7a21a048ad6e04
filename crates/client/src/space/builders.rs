//! Uploads and downloads, built option by option.

use std::fs;

use airlock_model::size::INLINE_MAX_BYTES;

use super::Space;
use crate::transfer::{
    self, DownloadOptions, Downloaded, LaneUnusable, OnProgress, Progress, Receipt, Source, Target,
    UploadOptions,
};
use crate::{CancellationToken, Error, GuestPath};

/// An upload, made by [`Space::upload`].
#[must_use = "nothing moves until `run` is called"]
#[derive(Debug)]
pub struct Upload {
    space: Space,
    source: Source,
    dest: GuestPath,
    options: UploadOptions,
    progress: Watcher,
    cancel: CancellationToken,
}

/// A download, made by [`Space::download`].
#[must_use = "nothing moves until `run` is called"]
#[derive(Debug)]
pub struct Download {
    space: Space,
    source: GuestPath,
    target: Target,
    options: DownloadOptions,
    progress: Watcher,
    cancel: CancellationToken,
}

/// Who wants to hear of the progress.
struct Watcher(Option<OnProgress>);

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Watcher" } else { "None" })
    }
}

impl Upload {
    pub(super) fn new(space: Space, source: Source, dest: GuestPath) -> Self {
        Self {
            space,
            source,
            dest,
            options: UploadOptions::default(),
            progress: Watcher(None),
            cancel: CancellationToken::new(),
        }
    }

    /// Make missing parent folders.
    pub fn create_parents(mut self, yes: bool) -> Self {
        self.options.create_parents = yes;
        self
    }

    /// Fail when the destination exists.
    pub fn create_new(mut self, yes: bool) -> Self {
        self.options.create_new = yes;
        self
    }

    /// Name to use when the destination is a folder. Default: the name of the source file.
    pub fn name_in_directory(mut self, name: impl Into<Vec<u8>>) -> Self {
        self.options.name_in_directory = Some(name.into());
        self
    }

    /// Give the copy the permission bits and modification time of the source file. Default: yes.
    pub fn keep_attributes(mut self, yes: bool) -> Self {
        self.options.keep_attributes = yes;
        self
    }

    /// Permission bits, whatever the source has.
    pub fn mode(mut self, mode: u32) -> Self {
        self.options.mode = Some(mode);
        self
    }

    /// Numeric owner and group. Default: the Space's user for a new file.
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.options.uid = Some(uid);
        self.options.gid = Some(gid);
        self
    }

    /// Success means that the file survives the death of the machine.
    pub fn fsync(mut self, yes: bool) -> Self {
        self.options.fsync = yes;
        self
    }

    /// Compute the ordinary SHA-256 of the file as it passes.
    pub fn sha256(mut self, yes: bool) -> Self {
        self.options.sha256 = yes;
        self
    }

    /// Called now and then with the bytes that are done.
    pub fn progress(mut self, watch: impl FnMut(Progress) + Send + 'static) -> Self {
        self.progress = Watcher(Some(Box::new(watch)));
        self
    }

    /// Gives up when `cancel` fires; nothing is left under the final name.
    pub fn cancel(mut self, cancel: CancellationToken) -> Self {
        self.cancel = cancel;
        self
    }

    /// Moves the file.
    pub async fn run(self) -> Result<Receipt, Error> {
        let lane = &self.space.lane;
        let session = if goes_inline(&self.source) {
            Err(LaneUnusable::new("the file is small"))
        } else {
            lane.session().await
        };
        let result = transfer::upload(
            lane.connection(),
            session.as_ref(),
            self.source,
            &self.dest,
            self.options,
            self.progress.0,
            &self.cancel,
        )
        .await;
        if session.is_ok() {
            lane.release_when_idle();
        }
        Ok(result?)
    }
}

/// Whether the source is known to fit into one message, so that no slot is needed for it.
fn goes_inline(source: &Source) -> bool {
    match source {
        Source::Bytes(bytes) => bytes.len() <= INLINE_MAX_BYTES,
        Source::Path(path) => fs::metadata(path)
            .is_ok_and(|meta| meta.is_file() && meta.len() <= INLINE_MAX_BYTES as u64),
        Source::Reader(_) => false,
    }
}

impl Download {
    pub(super) fn new(space: Space, source: GuestPath, target: Target) -> Self {
        Self {
            space,
            source,
            target,
            options: DownloadOptions::default(),
            progress: Watcher(None),
            cancel: CancellationToken::new(),
        }
    }

    /// Fail when the target exists.
    pub fn create_new(mut self, yes: bool) -> Self {
        self.options.create_new = yes;
        self
    }

    /// Give the copy the permission bits (less the umask) and the modification time that the
    /// file has in the Space. Default: yes.
    pub fn keep_attributes(mut self, yes: bool) -> Self {
        self.options.keep_attributes = yes;
        self
    }

    /// Reach the host's disk before success.
    pub fn fsync(mut self, yes: bool) -> Self {
        self.options.fsync = yes;
        self
    }

    /// Compute the ordinary SHA-256 of the file as it passes.
    pub fn sha256(mut self, yes: bool) -> Self {
        self.options.sha256 = yes;
        self
    }

    /// Called now and then with the bytes that are done.
    pub fn progress(mut self, watch: impl FnMut(Progress) + Send + 'static) -> Self {
        self.progress = Watcher(Some(Box::new(watch)));
        self
    }

    /// Gives up when `cancel` fires; nothing is left under the final name.
    pub fn cancel(mut self, cancel: CancellationToken) -> Self {
        self.cancel = cancel;
        self
    }

    /// Moves the file.
    pub async fn run(self) -> Result<Receipt, Error> {
        Ok(self.run_with_bytes().await?.receipt)
    }

    /// Moves the file, and returns its bytes where the target is memory.
    pub(super) async fn run_with_bytes(self) -> Result<Downloaded, Error> {
        let lane = &self.space.lane;
        let session = lane.session().await;
        let result = transfer::download(
            lane.connection(),
            session.as_ref(),
            &self.source,
            self.target,
            self.options,
            self.progress.0,
            &self.cancel,
        )
        .await;
        if session.is_ok() {
            lane.release_when_idle();
        }
        Ok(result?)
    }
}
