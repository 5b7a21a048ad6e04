//! The root file system of an image as a folder, for Spaces that are containers.
//!
//! A tree is named by what it was made from and by who owns its files; it is never written to
//! after it is published. It is filled as a hidden folder beside its place, renamed, and only
//! then described by `tree-….json` beside it: a tree without a description is a leftover. The
//! caller holds the image's lock while a tree is made or removed.

use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;
use tokio_util::sync::CancellationToken;

use crate::part::unix_now;
use crate::tree::owner::Ownership;
use crate::tree::record::Record;
use crate::tree::writer::TreeWriter;
use crate::workdir::sync_folder;

mod error;
pub(crate) mod ext4;
pub(crate) mod layer;
pub(crate) mod owner;
pub(crate) mod path;
pub(crate) mod record;
pub(crate) mod remove;
pub(crate) mod small;
pub(crate) mod writer;

pub use error::TreeError;
pub use owner::{MAP_IDS, Owners};

/// Digits of the source's digest that stand in a tree's name.
const NAME_DIGITS: usize = 16;

const PREFIX: &str = "tree-";
const UNFINISHED_PREFIX: &str = ".tree-";

/// A finished tree.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Tree {
    /// The folder; it must not be written to.
    pub path: PathBuf,
    /// SHA-256 of what it was made from, in hexadecimal.
    pub digest: String,
    /// The environment that the image gives its programs; empty where it says nothing.
    pub env: Vec<(String, String)>,
    /// The folder in which the image wants its programs to start.
    pub workdir: Option<String>,
}

/// A tree to be made.
pub(crate) struct Plan<'a> {
    /// The image's folder.
    pub(crate) dir: &'a Path,
    /// The way it is made.
    pub(crate) recipe: &'a str,
    /// SHA-256 of what it is made from, in hexadecimal.
    pub(crate) digest: &'a str,
    pub(crate) owners: Owners,
}

/// What fills a tree.
pub(crate) type Fill<'a> = dyn Fn(&mut TreeWriter<'_>) -> Result<(), TreeError> + 'a;

impl Plan<'_> {
    fn name(&self) -> String {
        let digits = &self.digest[..NAME_DIGITS.min(self.digest.len())];
        format!("{PREFIX}{digits}-{}", self.owners.tag())
    }

    /// Where the tree is or will be.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join(self.name())
    }

    /// The tree, if it was made before.
    pub(crate) fn find(&self) -> io::Result<Option<PathBuf>> {
        let path = self.path();
        let record = Record::read(&path)?.filter(|record| {
            record.digest == self.digest && record.owners == self.owners && path.is_dir()
        });
        Ok(record.map(|_| path))
    }

    /// Makes the tree; whatever has its name and is not described as it goes.
    pub(crate) fn make(
        &self,
        fill: &Fill<'_>,
        cancel: &CancellationToken,
    ) -> Result<PathBuf, TreeError> {
        sweep(self.dir)?;
        let unfinished = Unfinished::new(self.dir)?;
        let mut writer = TreeWriter::new(&unfinished.path, Ownership::Of(self.owners), cancel)?;
        fill(&mut writer)?;
        let (totals, _) = writer.finish()?;
        if totals.foreign_owners > 0 {
            tracing::warn!(
                files = totals.foreign_owners,
                "owners outside of the id map became nobody"
            );
        }
        // One call makes all files safe against a power cut; one for each would take minutes.
        rustix::fs::syncfs(fs::File::open(&unfinished.path)?).map_err(io::Error::from)?;
        let path = self.path();
        forget(&path)?;
        unfinished.publish(&path)?;
        sync_folder(self.dir)?;
        let record = Record {
            format: record::FORMAT,
            recipe: self.recipe.to_owned(),
            digest: self.digest.to_owned(),
            owners: self.owners,
            files: totals.files,
            skipped: totals.skipped,
            disk_bytes: record::disk_bytes(&path),
            created_unix: unix_now(),
        };
        record.publish(self.dir, &path)?;
        Ok(path)
    }
}

/// A tree that is being filled; removed when dropped.
struct Unfinished {
    path: PathBuf,
    is_published: bool,
}

impl Unfinished {
    fn new(dir: &Path) -> io::Result<Self> {
        let path = tempfile::Builder::new()
            .prefix(UNFINISHED_PREFIX)
            .tempdir_in(dir)?
            .keep();
        Ok(Self {
            path,
            is_published: false,
        })
    }

    fn publish(mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.is_published = true;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_published
            && let Err(error) = remove::tree(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "an unfinished tree stays behind");
        }
    }
}

/// Removes a tree; its description goes first, so that a half-removed one is never used.
pub(crate) fn forget(path: &Path) -> io::Result<()> {
    match fs::remove_file(record::path_of(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    remove::tree(path)
}

/// The trees of an image's folder, described or not.
pub(crate) fn all(dir: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(folders(dir)?
        .into_iter()
        .filter(|(name, _)| name.starts_with(PREFIX))
        .map(|(_, path)| path)
        .collect())
}

/// The tree that was made last by `recipe` for these owners.
pub(crate) fn newest(dir: &Path, recipe: &str, owners: Owners) -> io::Result<Option<Tree>> {
    let mut found: Option<(PathBuf, Record)> = None;
    for path in all(dir)? {
        if let Some(record) = Record::read(&path)?
            && record.recipe == recipe
            && record.owners == owners
            && found
                .as_ref()
                .is_none_or(|(_, other)| other.created_unix < record.created_unix)
        {
            found = Some((path, record));
        }
    }
    Ok(found.map(|(path, record)| Tree {
        path,
        digest: record.digest,
        env: Vec::new(),
        workdir: None,
    }))
}

/// What the tree at `path` takes on the disk, as counted when it was made.
pub(crate) fn disk_bytes(path: &Path) -> u64 {
    match Record::read(path) {
        Ok(Some(record)) => record.disk_bytes,
        Ok(None) | Err(_) => record::disk_bytes(path),
    }
}

/// Removes what an interrupted unpacking left; the caller holds the image's lock.
pub(crate) fn sweep(dir: &Path) -> io::Result<()> {
    for (name, path) in folders(dir)? {
        let is_leftover = name.starts_with(UNFINISHED_PREFIX)
            || (name.starts_with(PREFIX) && Record::read(&path)?.is_none());
        if is_leftover {
            forget(&path)?;
        }
    }
    Ok(())
}

/// Whether a name in an image's folder has to do with trees.
pub(crate) fn is_ours(name: &std::ffi::OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(PREFIX.as_bytes()) || name.starts_with(UNFINISHED_PREFIX.as_bytes())
}

fn folders(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    Ok(entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect())
}
