//! The SDK's error: which part failed, what a caller can act on, and what helps.

use airlock_engine::{EngineError, ErrorKind};
use airlock_model::{NameError, SpaceName};
use airlock_wire::{Fault, FaultKind};

use crate::exec::ExecError;
use crate::transfer::{self, ConnectError, DownloadError, UploadError};

/// Why a call of the SDK failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Making, finding, starting, stopping or deleting a Space.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A text that is no name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The keeper of a Space does not do its part.
    #[error("the keeper of the Space {name} failed: {reason}")]
    Keeper {
        /// The Space.
        name: SpaceName,
        /// Why.
        reason: String,
    },
    /// The Space's daemon cannot be connected to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A file did not get into the Space.
    #[error(transparent)]
    Upload(#[from] UploadError),
    /// A file did not get out of the Space.
    #[error(transparent)]
    Download(#[from] DownloadError),
    /// A command did not run to its end.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// The Space's daemon refused something else.
    #[error("the Space refused: {0}")]
    Remote(Fault),
}

impl Error {
    /// What a caller can act on.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Engine(error) => error.kind(),
            Self::Name(_) => ErrorKind::Usage,
            Self::Keeper { .. } | Self::Connect(_) => ErrorKind::NoAnswer,
            Self::Upload(error) => transfer_kind(error.kind()),
            Self::Download(error) => transfer_kind(error.kind()),
            Self::Exec(error) => match error {
                ExecError::Start { source, .. }
                | ExecError::Broken {
                    source: Some(source),
                    ..
                } => fault_kind(source.kind),
                ExecError::Broken { source: None, .. } => ErrorKind::NoAnswer,
                ExecError::OutputLost { .. } | ExecError::OutputLimit { .. } => ErrorKind::Failure,
            },
            Self::Remote(fault) => fault_kind(fault.kind),
        }
    }

    /// What a person can do about it.
    pub fn hints(&self) -> Vec<String> {
        match self {
            Self::Engine(error) => error.hints(),
            Self::Keeper { name, .. } => vec![format!("`airlock spaces info {name}` says more")],
            Self::Name(_)
            | Self::Connect(_)
            | Self::Upload(_)
            | Self::Download(_)
            | Self::Exec(_)
            | Self::Remote(_) => Vec::new(),
        }
    }
}

impl From<airlock_engine::image::ImageError> for Error {
    fn from(error: airlock_engine::image::ImageError) -> Self {
        Self::Engine(error.into())
    }
}

fn transfer_kind(kind: transfer::ErrorKind) -> ErrorKind {
    match kind {
        transfer::ErrorKind::NotFound => ErrorKind::NotFound,
        transfer::ErrorKind::Denied => ErrorKind::Denied,
        transfer::ErrorKind::HostDiskFull => ErrorKind::HostDiskFull,
        transfer::ErrorKind::NoAnswer => ErrorKind::NoAnswer,
        transfer::ErrorKind::Cancelled => ErrorKind::Cancelled,
        transfer::ErrorKind::Failed => ErrorKind::Failure,
    }
}

fn fault_kind(kind: FaultKind) -> ErrorKind {
    match kind {
        FaultKind::PathNotFound | FaultKind::ProcessNotFound | FaultKind::SessionNotFound => {
            ErrorKind::NotFound
        }
        FaultKind::Unauthenticated | FaultKind::PermissionDenied => ErrorKind::Denied,
        FaultKind::FeatureUnsupported | FaultKind::Unimplemented => ErrorKind::Unsupported,
        FaultKind::Unavailable => ErrorKind::NoAnswer,
        FaultKind::DeadlineExceeded => ErrorKind::TimedOut,
        FaultKind::InvalidArgument => ErrorKind::Usage,
        FaultKind::PathExists
        | FaultKind::NotADirectory
        | FaultKind::IsADirectory
        | FaultKind::DiskFull
        | FaultKind::ChecksumMismatch
        | FaultKind::OffsetMismatch
        | FaultKind::SequenceGap
        | FaultKind::RateLimited
        | FaultKind::StaleEpoch
        | FaultKind::LimitExceeded
        | FaultKind::NotInitialized
        | FaultKind::Internal
        | FaultKind::SourceChanged
        // The Space gave up; a caller that cancels here is told so without a fault.
        | FaultKind::Cancelled => ErrorKind::Failure,
    }
}
