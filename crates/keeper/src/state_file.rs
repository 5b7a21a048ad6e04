//! `state.json`: what the keeper last knew of its Space, for those who come when it is gone.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::protocol::Status;

/// Why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// It cannot be read.
    #[error("cannot read the state of the Space")]
    Io(#[from] io::Error),
    /// Its content is not what a keeper writes.
    #[error("{path} is damaged")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// Reads the state file at `path`; `None` when no keeper ever wrote one.
pub fn read_state(path: &Path) -> Result<Option<Status>, StateFileError> {
    let text = match fs_err::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|source| StateFileError::Damaged {
            path: path.to_owned(),
            source,
        })
}

/// Replaces the state file at `path`; a reader sees the old one or the new one, whole.
pub(crate) fn write_state(path: &Path, status: &Status) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer_pretty(&mut file, status)?;
    file.flush()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
