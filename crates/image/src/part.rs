//! Expensive pieces kept under `cache/`, each named by what it was made from.
//!
//! A new guestd needs none of them made again. A part is published by one rename of its folder,
//! so a part that has its description is whole.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::error::BuildError;
use crate::host::Arch;
use crate::job::Job;
use crate::progress::Phase;
use crate::workdir::{FileLock, remove_tree, sync_folder};

const DESCRIPTION: &str = "part.json";

/// What a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// A kernel and its modules.
    Kernel,
    /// The static busybox and its applets' names.
    Busybox,
}

impl Kind {
    /// Raised when the same package gives another part than before.
    pub(crate) fn recipe(self) -> u32 {
        match self {
            Self::Kernel => 2,
            Self::Busybox => 1,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::Busybox => "busybox",
        })
    }
}

/// The description that a part carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Description {
    pub(crate) kind: Kind,
    pub(crate) recipe: u32,
    pub(crate) arch: Arch,
    /// Version of the package it comes from.
    pub(crate) version: String,
    /// The kernel's release, `uname -r`; empty for other parts.
    pub(crate) release: String,
    pub(crate) created_unix: u64,
}

/// What the maker of a part learned of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Version of the package.
    pub(crate) version: String,
    /// The kernel's release; empty for other parts.
    pub(crate) release: String,
}

/// A finished part.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) dir: PathBuf,
    pub(crate) description: Description,
}

/// Whether to look for a newer package where a part exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Take what is there; ask package servers only for what is missing.
    Cached,
    /// Ask the package servers for the newest.
    Newest,
}

impl Part {
    /// Gives the newest cached part, or makes one with `make` in a new folder.
    ///
    /// Builds of different images
    /// that need the same part wait for each other here.
    pub(crate) fn obtain(
        job: &Job<'_>,
        kind: Kind,
        freshness: Freshness,
        make: &dyn Fn(&Path) -> Result<Origin, BuildError>,
    ) -> Result<Self, BuildError> {
        let lock = job.cache.join(format!("{kind}.lock"));
        let _lock = FileLock::take(&lock, job.cancel, || {
            job.report(Phase::Waiting, None, &kind.to_string());
        })?;
        if freshness == Freshness::Cached
            && let Some(part) = Self::newest(&job.cache, kind)
        {
            return Ok(part);
        }
        let folder = job.dir.folder(&kind.to_string())?;
        let Origin { version, release } = make(&folder)?;
        let description = Description {
            kind,
            recipe: kind.recipe(),
            arch: Arch::HOST,
            version,
            release,
            created_unix: unix_now(),
        };
        Self::publish(job, &folder, description)
    }

    fn publish(job: &Job<'_>, folder: &Path, description: Description) -> Result<Self, BuildError> {
        let text = serde_json::to_vec_pretty(&description).map_err(std::io::Error::from)?;
        fs::write(folder.join(DESCRIPTION), text)?;
        sync_files(folder)?;
        let Description {
            kind,
            recipe,
            version,
            ..
        } = &description;
        let dir = job.cache.join(format!("{kind}-{version}-r{recipe}"));
        let previous = Self::newest(&job.cache, *kind);
        remove_tree(&dir)?;
        fs::rename(folder, &dir)?;
        sync_folder(&job.cache)?;
        // The previous one stays: another build may be reading it.
        let keep = [Some(&dir), previous.as_ref().map(|part| &part.dir)];
        Self::remove_others(&job.cache, *kind, &keep);
        Ok(Self { dir, description })
    }

    fn remove_others(cache: &Path, kind: Kind, keep: &[Option<&PathBuf>]) {
        let prefix = format!("{kind}-");
        for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_part = entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(prefix.as_bytes());
            if is_part && !keep.contains(&Some(&path)) {
                let _ = remove_tree(&path);
            }
        }
    }

    /// The part of this kind that was made last, by today's recipe.
    pub(crate) fn newest(cache: &Path, kind: Kind) -> Option<Self> {
        fs::read_dir(cache)
            .ok()?
            .flatten()
            .filter_map(|entry| {
                let dir = entry.path();
                let text = fs::read(dir.join(DESCRIPTION)).ok()?;
                let description: Description = serde_json::from_slice(&text).ok()?;
                Some(Self { dir, description })
            })
            .filter(|Self { description, .. }| {
                description.kind == kind
                    && description.recipe == kind.recipe()
                    && description.arch == Arch::HOST
            })
            .max_by_key(|part| part.description.created_unix)
    }
}

/// Seconds since the Unix epoch.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs())
}

fn sync_files(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sync_files(&entry.path())?;
        } else if kind.is_file() {
            fs::File::open(entry.path())?.sync_all()?;
        }
    }
    sync_folder(folder)
}
