//! Why a tree cannot be made.

use std::io;
use std::path::PathBuf;

/// Why an image's root file system cannot be made a folder.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// It was cancelled; nothing of it is left.
    #[error("cancelled")]
    Cancelled,
    /// The image has a path that is none.
    #[error("the image has the path {path:?}, which {problem}")]
    BadPath {
        /// The path as the image spells it.
        path: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The image wants to write below something that is no folder, such as a symbolic link.
    #[error("the image has {path}, but {parent} is no folder of it")]
    NotBelowFolder {
        /// What was to be made.
        path: String,
        /// The part of the path that is no folder.
        parent: String,
    },
    /// A hard link leads to something that cannot have another name.
    #[error("the image has {path} as another name of {target}, which is no file of it")]
    BadHardLink {
        /// The link.
        path: String,
        /// What it leads to.
        target: String,
    },
    /// The image has more files than any real one.
    #[error("the image has more than {limit} files")]
    TooManyFiles {
        /// How many are taken.
        limit: u64,
    },
    /// A layer is not what its digest says.
    #[error("{file} is damaged: its SHA-256 is {found}, not {expected}")]
    Digest {
        /// The file.
        file: String,
        /// The digest it should have.
        expected: String,
        /// The digest it has.
        found: String,
    },
    /// The archive uses something that Airlock cannot read.
    #[error("cannot read {path} in the archive: {what} are not supported")]
    Unsupported {
        /// The entry.
        path: String,
        /// What it uses.
        what: &'static str,
    },
    /// The archive is not whole or no archive at all.
    #[error("cannot read the archive {}", file.display())]
    Archive {
        /// The archive.
        file: PathBuf,
        /// What is wrong.
        source: io::Error,
    },
    /// The root file system cannot be read.
    #[error("cannot read {path} of the root file system {}", file.display())]
    Ext4 {
        /// The file that holds the file system.
        file: PathBuf,
        /// The path in it.
        path: String,
        /// What is wrong.
        source: io::Error,
    },
    /// A file of the tree cannot be written.
    #[error("cannot write {path} of the tree")]
    Write {
        /// The path in the tree.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// A file beside the tree cannot be read or written.
    #[error("a file operation failed")]
    Io(#[from] io::Error),
}

impl TreeError {
    /// Whether the host's disk is full.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Write { source, .. } | Self::Io(source) => {
                source.kind() == io::ErrorKind::StorageFull
            }
            Self::Cancelled
            | Self::BadPath { .. }
            | Self::NotBelowFolder { .. }
            | Self::BadHardLink { .. }
            | Self::TooManyFiles { .. }
            | Self::Digest { .. }
            | Self::Unsupported { .. }
            | Self::Archive { .. }
            | Self::Ext4 { .. } => false,
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Write { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => Some(
                "owners other than oneself can be set by root alone; \
                 look who owns the Airlock folder"
                    .into(),
            ),
            Self::Write { .. } | Self::Io(_) if self.is_disk_full() => {
                Some(crate::error::DISK_FULL_HINT.into())
            }
            Self::Digest { .. } => Some("remove the image and make it again".into()),
            Self::NotBelowFolder { .. } => Some(
                "Airlock never writes through a link of an image; \
                 give the image's makers this message"
                    .into(),
            ),
            Self::Cancelled
            | Self::BadPath { .. }
            | Self::BadHardLink { .. }
            | Self::TooManyFiles { .. }
            | Self::Unsupported { .. }
            | Self::Archive { .. }
            | Self::Ext4 { .. }
            | Self::Write { .. }
            | Self::Io(_) => None,
        }
    }
}
