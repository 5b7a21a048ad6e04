//! Why an image cannot be imported.

use std::io;
use std::path::PathBuf;

use airlock_model::{ImageName, NameError};
use oci_client::errors::{OciDistributionError, OciErrorCode};

use crate::error::{BuildError, DISK_FULL_HINT};
use crate::import::SourceError;
use crate::tree::TreeError;

/// Why an image cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It was cancelled; what was fetched until then is kept for the next time.
    #[error("cancelled")]
    Cancelled,
    /// The text names no image.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The registry does not give it.
    #[error("the registry does not give {reference}")]
    Registry {
        /// What was asked for.
        reference: String,
        /// What it said.
        source: Box<OciDistributionError>,
    },
    /// The connection broke off.
    #[error("lost the connection to the registry while fetching {what}")]
    Interrupted {
        /// What was being fetched.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// It is for another processor.
    #[error("{reference} is for {found}, not for linux/{wanted}")]
    WrongPlatform {
        /// What was asked for.
        reference: String,
        /// This host's architecture.
        wanted: &'static str,
        /// What there is.
        found: String,
    },
    /// What the registry has under this name is no image, or one of a kind that is not known.
    #[error("{reference} is no image that Airlock can use: {problem}")]
    NotAnImage {
        /// What was asked for.
        reference: String,
        /// What is wrong with it.
        problem: String,
    },
    /// What was fetched is not what its digest says.
    #[error("the registry gave wrong bytes for {what}: SHA-256 is {found}, not {expected}")]
    Digest {
        /// What was fetched.
        what: String,
        /// The digest it should have.
        expected: String,
        /// The digest it has.
        found: String,
    },
    /// A folder or an archive cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// What was to be read.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A path is no folder.
    #[error("{} is no folder", path.display())]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// A file changed while it was read.
    #[error("{} changed while it was read", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A file is no archive.
    #[error("{} is no archive of a root file system", path.display())]
    NotAnArchive {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: TreeError,
    },
    /// Another image has the name that tells this content.
    #[error("the name {name} belongs to another image")]
    NameTaken {
        /// The name.
        name: ImageName,
    },
    /// No name can be made for it.
    #[error("cannot name the image")]
    Name(#[from] NameError),
    /// The build folder cannot be used.
    #[error("cannot work in the cache")]
    Build(#[source] BuildError),
    /// Airlock's own files cannot be read or written.
    #[error("a file operation failed")]
    Io(#[from] io::Error),
}

impl From<BuildError> for ImportError {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Cancelled => Self::Cancelled,
            BuildError::Io(error) => Self::Io(error),
            BuildError::MissingTools(_)
            | BuildError::Guestd(_)
            | BuildError::UnsupportedHost { .. }
            | BuildError::Command(_)
            | BuildError::NoPackage { .. }
            | BuildError::NotInPackage { .. }
            | BuildError::Module { .. }
            | BuildError::Tree(_) => Self::Build(error),
        }
    }
}

impl ImportError {
    /// Whether the host's disk is full.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Io(error) => error.kind() == io::ErrorKind::StorageFull,
            Self::Build(error) => error.is_disk_full(),
            Self::Cancelled
            | Self::Source(_)
            | Self::Registry { .. }
            | Self::Interrupted { .. }
            | Self::WrongPlatform { .. }
            | Self::NotAnImage { .. }
            | Self::Digest { .. }
            | Self::Read { .. }
            | Self::NotAFolder { .. }
            | Self::Changed { .. }
            | Self::NotAnArchive { .. }
            | Self::NameTaken { .. }
            | Self::Name(_) => false,
        }
    }

    /// Whether the registry could not be reached.
    pub fn is_network(&self) -> bool {
        match self {
            Self::Registry { source, .. } => {
                matches!(**source, OciDistributionError::RequestError(_))
            }
            Self::Interrupted { .. } => true,
            Self::Cancelled
            | Self::Source(_)
            | Self::WrongPlatform { .. }
            | Self::NotAnImage { .. }
            | Self::Digest { .. }
            | Self::Read { .. }
            | Self::NotAFolder { .. }
            | Self::Changed { .. }
            | Self::NotAnArchive { .. }
            | Self::NameTaken { .. }
            | Self::Name(_)
            | Self::Build(_)
            | Self::Io(_) => false,
        }
    }

    /// Whether there is nothing of this name.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Registry { source, .. } => match &**source {
                OciDistributionError::ImageManifestNotFoundError(_)
                | OciDistributionError::ServerError { code: 404, .. } => true,
                OciDistributionError::RegistryError { envelope, .. } => {
                    envelope.errors.iter().any(|error| {
                        [
                            OciErrorCode::ManifestUnknown,
                            OciErrorCode::NameUnknown,
                            OciErrorCode::NotFound,
                        ]
                        .contains(&error.code)
                    })
                }
                _ => false,
            },
            Self::Read { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Self::NotAFolder { .. } => true,
            Self::Cancelled
            | Self::Source(_)
            | Self::Interrupted { .. }
            | Self::WrongPlatform { .. }
            | Self::NotAnImage { .. }
            | Self::Digest { .. }
            | Self::Changed { .. }
            | Self::NotAnArchive { .. }
            | Self::NameTaken { .. }
            | Self::Name(_)
            | Self::Build(_)
            | Self::Io(_) => false,
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        if self.is_disk_full() {
            return Some(DISK_FULL_HINT.into());
        }
        if self.is_network() {
            return Some(
                "check that this host reaches the registry, then try again: \
                 what was fetched is kept"
                    .into(),
            );
        }
        if self.is_not_found() {
            return Some("check the name and, for a registry, the tag".into());
        }
        match self {
            Self::Source(error) => Some(error.hint()),
            Self::Build(error) => error.hint(),
            Self::Registry { source, .. } => match **source {
                OciDistributionError::UnauthorizedError { .. }
                | OciDistributionError::AuthenticationFailure(_) => Some(
                    "only images that anybody may read can be fetched; save this one with \
                     another tool (docker export) and use the archive"
                        .into(),
                ),
                _ => None,
            },
            Self::NotAnArchive { .. } => Some(
                "it must be a .tar, .tar.gz or .tar.zst of a root file system, \
                 such as docker export writes"
                    .into(),
            ),
            Self::NameTaken { name } => Some(format!("remove it first: airlock image rm {name}")),
            Self::Digest { .. } => Some("try again; if it stays so, do not use this image".into()),
            Self::Cancelled
            | Self::Interrupted { .. }
            | Self::WrongPlatform { .. }
            | Self::NotAnImage { .. }
            | Self::Read { .. }
            | Self::NotAFolder { .. }
            | Self::Changed { .. }
            | Self::Name(_)
            | Self::Io(_) => None,
        }
    }
}
