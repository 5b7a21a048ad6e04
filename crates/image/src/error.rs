//! Why an image cannot be had, built or removed.

use std::io;
use std::path::PathBuf;

use airlock_model::{ImageName, SpaceName};

use crate::command::CommandError;
use crate::guestd_bin::GuestdError;
use crate::host::MissingTools;
use crate::import::ImportError;
use crate::tree::TreeError;

/// Why an image cannot be had or removed.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// No image has this name.
    #[error("there is no image {name}; images are: {}", known.join(", "))]
    Unknown {
        /// The name asked for.
        name: ImageName,
        /// The names that exist.
        known: Vec<String>,
    },
    /// The image is known but nobody has built it yet.
    #[error("the image {name} is not built")]
    NotBuilt {
        /// The image.
        name: ImageName,
    },
    /// A file of the image is not what its manifest says.
    #[error("the image {name} is damaged: {} has {found} bytes, not {expected}", path.display())]
    Damaged {
        /// The image.
        name: ImageName,
        /// The file.
        path: PathBuf,
        /// Its size by the manifest.
        expected: u64,
        /// Its size on the disk; 0 where it is gone.
        found: u64,
    },
    /// Spaces depend on the image.
    #[error("the image {name} is in use by {}", join(spaces))]
    InUse {
        /// The image.
        name: ImageName,
        /// The Spaces made from it.
        spaces: Vec<SpaceName>,
    },
    /// Another process is building the image.
    #[error("the image {name} is being built")]
    Busy {
        /// The image.
        name: ImageName,
    },
    /// Programs are missing that the build needs.
    #[error("cannot build the image {name}")]
    MissingTools {
        /// The image.
        name: ImageName,
        /// What is missing.
        source: MissingTools,
    },
    /// There is no guestd to put into the image.
    #[error("cannot build the image {name}")]
    Guestd {
        /// The image.
        name: ImageName,
        /// Why not.
        source: GuestdError,
    },
    /// The build was cancelled; nothing of it is left but the log.
    #[error("building the image {name} was cancelled")]
    Cancelled {
        /// The image.
        name: ImageName,
    },
    /// The build failed.
    #[error("cannot build the image {name} (full log: {})", log.display())]
    Build {
        /// The image.
        name: ImageName,
        /// All that the programs printed.
        log: PathBuf,
        /// What went wrong.
        source: BuildError,
    },
    /// The image cannot be imported.
    #[error("cannot import the image {image}")]
    Import {
        /// What was to be imported.
        image: String,
        /// What went wrong.
        source: Box<ImportError>,
    },
    /// The root file system cannot be made a folder.
    #[error("cannot unpack the image {name}")]
    Tree {
        /// The image.
        name: ImageName,
        /// What went wrong.
        source: TreeError,
    },
    /// The image lives in its initramfs and nobody knows how that was made.
    #[error("the image {name} has no root file system that could be unpacked")]
    NoRoot {
        /// The image.
        name: ImageName,
    },
    /// The catalog's own files cannot be read or written.
    #[error("cannot use the image folder")]
    Io(#[source] io::Error),
}

fn join(spaces: &[SpaceName]) -> String {
    spaces
        .iter()
        .map(SpaceName::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

impl ImageError {
    /// Whether it ended because the caller wanted it to.
    pub fn is_cancelled(&self) -> bool {
        match self {
            Self::Cancelled { .. } => true,
            Self::Import { source, .. } => matches!(**source, ImportError::Cancelled),
            Self::Unknown { .. }
            | Self::NotBuilt { .. }
            | Self::Damaged { .. }
            | Self::InUse { .. }
            | Self::Busy { .. }
            | Self::MissingTools { .. }
            | Self::Guestd { .. }
            | Self::Build { .. }
            | Self::Tree { .. }
            | Self::NoRoot { .. }
            | Self::Io(_) => false,
        }
    }

    /// Whether the host's disk is full.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Build { source, .. } => source.is_disk_full(),
            Self::Tree { source, .. } => source.is_disk_full(),
            Self::Import { source, .. } => source.is_disk_full(),
            Self::Io(source) => source.kind() == io::ErrorKind::StorageFull,
            Self::Unknown { .. }
            | Self::NotBuilt { .. }
            | Self::Damaged { .. }
            | Self::InUse { .. }
            | Self::Busy { .. }
            | Self::MissingTools { .. }
            | Self::Guestd { .. }
            | Self::NoRoot { .. }
            | Self::Cancelled { .. } => false,
        }
    }

    /// Whether a package server or a registry could not be reached.
    pub fn is_network(&self) -> bool {
        match self {
            Self::Build { source, .. } => source.is_network(),
            Self::Import { source, .. } => source.is_network(),
            Self::Unknown { .. }
            | Self::NotBuilt { .. }
            | Self::Damaged { .. }
            | Self::InUse { .. }
            | Self::Busy { .. }
            | Self::MissingTools { .. }
            | Self::Guestd { .. }
            | Self::Cancelled { .. }
            | Self::Tree { .. }
            | Self::NoRoot { .. }
            | Self::Io(_) => false,
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotBuilt { name } => Some(format!("build it: airlock image build {name}")),
            Self::Damaged { name, .. } => Some(format!(
                "build it again: airlock image rm {name}; airlock image build {name}"
            )),
            Self::InUse { .. } => Some("delete these Spaces first: airlock spaces delete".into()),
            Self::Busy { .. } => Some("wait for the build to end".into()),
            Self::MissingTools { source, .. } => Some(source.hint()),
            Self::Guestd { source, .. } => Some(source.hint().into()),
            Self::Build { source, .. } => source.hint(),
            Self::Tree { source, .. } => source.hint(),
            Self::Import { source, .. } => source.hint(),
            Self::NoRoot { .. } => Some("use it for VM Spaces: --kind vm".into()),
            Self::Io(_) if self.is_disk_full() => Some(DISK_FULL_HINT.into()),
            Self::Io(_) | Self::Unknown { .. } | Self::Cancelled { .. } => None,
        }
    }
}

pub(crate) const DISK_FULL_HINT: &str = "make room on the disk that holds the Airlock folder, \
                              or set AIRLOCK_HOME to one with room";

/// Why a build failed.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The build was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// A needed program is not there.
    #[error(transparent)]
    MissingTools(#[from] MissingTools),
    /// There is no guestd.
    #[error(transparent)]
    Guestd(#[from] GuestdError),
    /// Images are made of Debian packages, and this host is no Debian.
    #[error("cannot fetch Debian packages on a host of the kind {id:?}")]
    UnsupportedHost {
        /// `ID` of its os-release.
        id: String,
    },
    /// A program failed.
    #[error(transparent)]
    Command(CommandError),
    /// The package sources do not have this package.
    #[error("the package sources of this host have no package {package}")]
    NoPackage {
        /// Its name.
        package: String,
    },
    /// A package is not made as expected.
    #[error("the package {package} has no {what}")]
    NotInPackage {
        /// The package's name.
        package: String,
        /// What was looked for.
        what: String,
    },
    /// A kernel module is not what it should be.
    #[error("cannot use the kernel module {module}: {problem}")]
    Module {
        /// Its name.
        module: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The layers of an imported image cannot be unpacked.
    #[error("cannot unpack the image's layers")]
    Tree(#[source] TreeError),
    /// A file cannot be read or written.
    #[error("a file operation failed")]
    Io(#[from] io::Error),
}

impl From<TreeError> for BuildError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Cancelled => Self::Cancelled,
            TreeError::BadPath { .. }
            | TreeError::NotBelowFolder { .. }
            | TreeError::BadHardLink { .. }
            | TreeError::TooManyFiles { .. }
            | TreeError::Digest { .. }
            | TreeError::Unsupported { .. }
            | TreeError::Archive { .. }
            | TreeError::Ext4 { .. }
            | TreeError::Write { .. }
            | TreeError::Io(_) => Self::Tree(error),
        }
    }
}

impl From<CommandError> for BuildError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Cancelled => Self::Cancelled,
            CommandError::Start { .. }
            | CommandError::Output { .. }
            | CommandError::Failed { .. } => Self::Command(error),
        }
    }
}

impl BuildError {
    /// Whether the host's disk is full.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Command(error) => error.is_disk_full(),
            Self::Io(error) => error.kind() == io::ErrorKind::StorageFull,
            Self::Tree(error) => error.is_disk_full(),
            Self::Cancelled
            | Self::MissingTools(_)
            | Self::Guestd(_)
            | Self::UnsupportedHost { .. }
            | Self::NoPackage { .. }
            | Self::NotInPackage { .. }
            | Self::Module { .. } => false,
        }
    }

    /// Whether a package server could not be reached.
    pub fn is_network(&self) -> bool {
        matches!(self, Self::Command(error) if error.is_network())
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        if self.is_disk_full() {
            return Some(DISK_FULL_HINT.into());
        }
        if self.is_network() {
            return Some("check that this host reaches its package servers: apt-get update".into());
        }
        match self {
            Self::MissingTools(missing) => Some(missing.hint()),
            Self::Guestd(error) => Some(error.hint().into()),
            Self::UnsupportedHost { .. } => Some(
                "build the image on a Debian or Ubuntu machine of the same architecture \
                 and copy its images folder into this AIRLOCK_HOME"
                    .into(),
            ),
            Self::Tree(error) => error.hint(),
            Self::NoPackage { .. } => Some("refresh the package lists: apt-get update".into()),
            Self::Cancelled
            | Self::Command(_)
            | Self::NotInPackage { .. }
            | Self::Module { .. }
            | Self::Io(_) => None,
        }
    }
}
