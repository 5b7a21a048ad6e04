//! The description of a finished tree: `tree-….json` beside it.

use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::tree::Owners;
use crate::workdir::sync_folder;

/// Raised when trees made before are no longer good.
pub(crate) const FORMAT: u32 = 1;

/// What a tree is; its being there says that the tree is whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) format: u32,
    /// The way it was made.
    pub(crate) recipe: String,
    /// SHA-256 of what it was made from, in hexadecimal.
    pub(crate) digest: String,
    pub(crate) owners: Owners,
    pub(crate) files: u64,
    /// Devices and sockets that were left out.
    pub(crate) skipped: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) created_unix: u64,
}

impl Record {
    /// Reads the description of the tree at `tree`; `None` if it has none or one of another format.
    pub(crate) fn read(tree: &Path) -> io::Result<Option<Self>> {
        match fs::read(path_of(tree)) {
            Ok(text) => Ok(serde_json::from_slice::<Self>(&text)
                .ok()
                .filter(|record| record.format == FORMAT)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the description, whole or not at all.
    pub(crate) fn publish(&self, dir: &Path, tree: &Path) -> io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(".record-")
            .tempfile_in(dir)?;
        serde_json::to_writer_pretty(&mut file, self)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(path_of(tree))?;
        sync_folder(dir)
    }
}

/// Where the description of the tree at `tree` is.
pub(crate) fn path_of(tree: &Path) -> PathBuf {
    let mut path = tree.as_os_str().to_owned();
    path.push(".json");
    path.into()
}

/// What a tree takes on the disk; files with several names count once.
pub(crate) fn disk_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?, entry.path())))
        .map(|(meta, path)| {
            let own = meta.blocks() * 512;
            if meta.is_dir() {
                own + disk_bytes(&path)
            } else {
                own / meta.nlink().max(1)
            }
        })
        .sum()
}
