//! What can go wrong with the life of a Space.

use std::io;
use std::path::PathBuf;

use airlock_image::{ImageError, ImportError};
use airlock_model::{SpaceName, SpaceState};

/// What a caller can act on; each has an exit code of its own in the CLI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// It did not work.
    Failure,
    /// The request makes no sense.
    Usage,
    /// No such Space, image, file or folder.
    NotFound,
    /// This host lacks something or it is not set up.
    Unsupported,
    /// Nothing answers.
    NoAnswer,
    /// Permission denied.
    Denied,
    /// The host's disk is full.
    HostDiskFull,
    /// It took longer than allowed.
    TimedOut,
    /// The caller gave up.
    Cancelled,
}

/// Why a Space could not be made, found, started, stopped or deleted.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// There is no home folder.
    #[error("neither AIRLOCK_HOME nor HOME is set")]
    NoHome,
    /// A file or folder of Airlock's own cannot be used.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The folder belongs to somebody else.
    #[error("{} belongs to another user (uid {owner})", path.display())]
    ForeignHome {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// No such Space.
    #[error("there is no Space {name}")]
    NoSuchSpace {
        /// Its name.
        name: SpaceName,
    },
    /// The name is taken.
    #[error("there is a Space {name} already")]
    Exists {
        /// Its name.
        name: SpaceName,
    },
    /// The Space is not running.
    #[error("the Space {name} is {state}, not running")]
    NotRunning {
        /// Its name.
        name: SpaceName,
        /// What it is instead.
        state: SpaceState,
    },
    /// The Space runs already.
    #[error("the Space {name} is {state} already")]
    AlreadyRunning {
        /// Its name.
        name: SpaceName,
        /// What it is.
        state: SpaceState,
    },
    /// The Space has no record: whoever made or removed it was stopped in the middle.
    #[error("the creation of the Space {name} was cut short")]
    CutShort {
        /// Its name.
        name: SpaceName,
    },
    /// The Space's record is damaged.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Two wishes exclude each other.
    #[error("{first} does not go with {second}")]
    Conflict {
        /// One flag with its value.
        first: String,
        /// The other.
        second: String,
    },
    /// The settings cannot be used.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// No OCI runtime can be used.
    #[error("no container can be made")]
    Runtime(#[from] airlock_oci::runtime::RuntimeError),
    /// A number of the specification is out of range.
    #[error("{flag} {found} is out of range: {allowed}")]
    OutOfRange {
        /// The CLI's name of the value.
        flag: &'static str,
        /// What was given.
        found: u64,
        /// What is allowed.
        allowed: String,
    },
    /// The image cannot be had.
    #[error("the image cannot be had")]
    Image(#[from] ImageError),
    /// Files of other owners cannot be worked on.
    #[error("the image cannot be had")]
    Mapped(#[from] crate::mapped::MappedError),
    /// QEMU cannot be used.
    #[error("QEMU cannot be used")]
    Qemu(#[from] airlock_qemu::discover::DiscoverError),
    /// The accelerator cannot be used.
    #[error("the accelerator cannot be used")]
    Accel(#[from] airlock_qemu::accel::AccelError),
    /// The Space's disk cannot be made.
    #[error("the Space's disk cannot be made")]
    Overlay(#[from] airlock_qemu::overlay::OverlayError),
    /// There is no program to run as keeper.
    #[error("the airlock program is not found, and a Space needs it as its keeper")]
    NoKeeperProgram,
    /// The keeper could not be started, or did not speak.
    #[error("the keeper did not start")]
    KeeperStart(#[source] io::Error),
    /// The keeper ended without a word.
    #[error("the keeper ended without a word; the end of its log: {log_tail}")]
    KeeperSilent {
        /// What its log ends with.
        log_tail: String,
    },
    /// The keeper reported why the Space did not start.
    #[error("the Space did not start: {message}")]
    Launch {
        /// What kind of failure.
        kind: ErrorKind,
        /// What happened.
        message: String,
        /// What to do.
        hints: Vec<String>,
        /// The end of the console.
        console_tail: String,
        /// Where the whole console is, while the Space's files are kept.
        console: PathBuf,
    },
    /// Nothing answers for a Space that should run.
    #[error("the keeper of {name} does not answer")]
    NoKeeper {
        /// The Space.
        name: SpaceName,
        /// Why.
        source: io::Error,
    },
    /// The keeper said something unexpected.
    #[error("the keeper of {name} does not answer properly")]
    Keeper {
        /// The Space.
        name: SpaceName,
        /// Why.
        source: airlock_keeper::protocol::TransportError,
    },
    /// The keeper refused.
    #[error("the keeper of {name} refused: {reason}")]
    Refused {
        /// The Space.
        name: SpaceName,
        /// Why.
        reason: String,
    },
    /// The keeper or the machine does not end.
    #[error("the Space {name} does not end")]
    DoesNotEnd {
        /// The Space.
        name: SpaceName,
    },
    /// The caller gave up.
    #[error("cancelled")]
    Cancelled,
}

impl EngineError {
    pub(crate) fn file(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }

    /// What a caller can act on.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSuchSpace { .. } => ErrorKind::NotFound,
            Self::File { source, .. } => io_kind(source),
            Self::ForeignHome { .. } => ErrorKind::Denied,
            Self::Exists { .. }
            | Self::AlreadyRunning { .. }
            | Self::Damaged { .. }
            | Self::CutShort { .. }
            | Self::KeeperStart(_)
            | Self::KeeperSilent { .. }
            | Self::DoesNotEnd { .. }
            | Self::Refused { .. } => ErrorKind::Failure,
            Self::OutOfRange { .. } | Self::Conflict { .. } => ErrorKind::Usage,
            Self::Config(error) => error.kind(),
            Self::Mapped(error) => error.kind(),
            Self::NoHome
            | Self::Runtime(_)
            | Self::Qemu(_)
            | Self::Accel(_)
            | Self::NoKeeperProgram => ErrorKind::Unsupported,
            Self::NotRunning { .. } | Self::NoKeeper { .. } | Self::Keeper { .. } => {
                ErrorKind::NoAnswer
            }
            Self::Launch { kind, .. } => *kind,
            Self::Cancelled => ErrorKind::Cancelled,
            Self::Image(error) if error.is_cancelled() => ErrorKind::Cancelled,
            Self::Image(ImageError::Import { source, .. }) if source.is_not_found() => {
                ErrorKind::NotFound
            }
            Self::Image(error) if error.is_disk_full() => ErrorKind::HostDiskFull,
            Self::Image(error) => match error {
                ImageError::Unknown { .. } | ImageError::NotBuilt { .. } => ErrorKind::NotFound,
                ImageError::MissingTools { .. }
                | ImageError::Guestd { .. }
                | ImageError::NoRoot { .. } => ErrorKind::Unsupported,
                ImageError::Io(source) => io_kind(source),
                ImageError::Import { source, .. } => match &**source {
                    ImportError::Source(_) | ImportError::Name(_) => ErrorKind::Usage,
                    ImportError::Read { source, .. } => io_kind(source),
                    ImportError::NotAFolder { .. } => ErrorKind::NotFound,
                    ImportError::Interrupted { .. } => ErrorKind::NoAnswer,
                    ImportError::WrongPlatform { .. } => ErrorKind::Unsupported,
                    _ => ErrorKind::Failure,
                },
                ImageError::Damaged { .. }
                | ImageError::InUse { .. }
                | ImageError::Busy { .. }
                | ImageError::Cancelled { .. }
                | ImageError::Tree { .. }
                | ImageError::Build { .. } => ErrorKind::Failure,
            },
            Self::Overlay(error) => match error {
                airlock_qemu::overlay::OverlayError::File { source, .. } => io_kind(source),
                _ => ErrorKind::Failure,
            },
        }
    }

    /// What a person can do about it.
    pub fn hints(&self) -> Vec<String> {
        match self {
            Self::NoHome => vec!["set AIRLOCK_HOME to a folder for Airlock's files".into()],
            Self::ForeignHome { .. } => vec!["set AIRLOCK_HOME to a folder of your own".into()],
            Self::NoSuchSpace { .. } => vec!["`airlock spaces ls` lists the Spaces".into()],
            Self::Exists { name } => {
                vec![format!(
                    "choose another --name, or `airlock spaces delete {name}`"
                )]
            }
            Self::NotRunning { name, .. } => vec![format!("start it: airlock spaces start {name}")],
            Self::Damaged { .. } | Self::CutShort { .. } => {
                vec!["delete the Space: `airlock spaces delete` works".into()]
            }
            Self::Conflict { first, second } => vec![format!("leave {first} or {second} away")],
            Self::Config(error) => vec![error.hint()],
            Self::Mapped(error) => error.hint().into_iter().collect(),
            Self::Runtime(error) => vec![error.hint()],
            Self::Image(error) => error.hint().into_iter().collect(),
            Self::Qemu(error) => vec![error.hint()],
            Self::Accel(error) => vec![error.hint().to_owned()],
            Self::NoKeeperProgram => {
                vec!["put `airlock` into PATH, or name it in AIRLOCK_KEEPER".into()]
            }
            Self::Launch { hints, .. } => hints.clone(),
            Self::NoKeeper { name, .. } | Self::Keeper { name, .. } => {
                vec![format!("`airlock spaces info {name}` says more")]
            }
            Self::File { source, .. } => match io_kind(source) {
                ErrorKind::HostDiskFull => vec!["make room, or set AIRLOCK_HOME elsewhere".into()],
                ErrorKind::Denied => vec!["set AIRLOCK_HOME to a folder of your own".into()],
                _ => Vec::new(),
            },
            Self::AlreadyRunning { .. }
            | Self::OutOfRange { .. }
            | Self::Overlay(_)
            | Self::KeeperStart(_)
            | Self::KeeperSilent { .. }
            | Self::Refused { .. }
            | Self::DoesNotEnd { .. }
            | Self::Cancelled => Vec::new(),
        }
    }
}

/// The kind of an I/O error on one of Airlock's own files.
pub(crate) fn io_kind(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::HostDiskFull,
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::Failure,
    }
}
