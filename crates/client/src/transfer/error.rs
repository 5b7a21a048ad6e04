//! How a transfer can fail.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use airlock_digest::Digest;
use airlock_lane::{CoverageError, PartError};
use airlock_wire::{Fault, FaultKind};

use crate::guest_path::escape;

/// What a program does about a failed transfer; the CLI makes exit codes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The source, or the folder of the destination, is not there.
    NotFound,
    /// The host's or the Space's file system said no.
    Denied,
    /// The host's disk is full.
    HostDiskFull,
    /// guestd does not answer (any more).
    NoAnswer,
    /// The caller cancelled.
    Cancelled,
    /// Anything else.
    Failed,
}

/// What the Space did that no honest guestd does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misconduct {
    /// A part that cannot be.
    #[error(transparent)]
    Part(#[from] PartError),
    /// A part that does not fit to what came before.
    #[error(transparent)]
    Coverage(#[from] CoverageError),
    /// A slot that the Space was not given.
    #[error("it names slot {slot}, which it was not given")]
    Slot {
        /// The slot.
        slot: u32,
    },
    /// More than was asked for at a time.
    #[error("it sends more parts at once than it was allowed to")]
    TooMany,
    /// A message at the wrong time, or an empty one.
    #[error("its message makes no sense here")]
    Message,
    /// The file in the Space is said to be larger than possible.
    #[error("it claims a file of {size} bytes")]
    Size {
        /// Bytes claimed.
        size: u64,
    },
    /// The root is not that of the verified leaves.
    #[error("its root is {got}, the leaves have {expected}")]
    Root {
        /// Root of the leaves.
        expected: Digest,
        /// Root that it tells.
        got: String,
    },
    /// The stream ended in the middle.
    #[error("it ended the transfer in the middle")]
    EndOfStream,
}

/// Why a file was not moved into the Space. Nothing was published there.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// The source is not there.
    #[error("{} does not exist", shown(path))]
    SourceNotFound {
        /// The source.
        path: PathBuf,
    },
    /// The source is a folder.
    #[error("{} is a directory", shown(path))]
    SourceIsDirectory {
        /// The source.
        path: PathBuf,
    },
    /// The source may not be read.
    #[error("{} may not be read", shown(path))]
    SourceDenied {
        /// The source.
        path: PathBuf,
    },
    /// The source was written to meanwhile.
    #[error("{} changed while it was read", shown(path))]
    SourceChanged {
        /// The source.
        path: PathBuf,
    },
    /// The source could not be read.
    #[error("{} could not be read", shown(path))]
    SourceRead {
        /// The source, `-` for a stream.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// guestd said no.
    #[error("{}", shown_text(&.0.message))]
    Remote(Fault),
    /// The connection broke, or nothing answers.
    #[error("the connection to the Space was lost: {}", shown_text(reason))]
    ConnectionLost {
        /// What the transport said.
        reason: String,
    },
    /// guestd is silent.
    #[error("the Space has not answered for {} s", timeout.as_secs())]
    Stalled {
        /// How long was waited.
        timeout: Duration,
    },
    /// A part did not verify, whatever the route.
    #[error("the part at offset {offset} arrived damaged {tries} times")]
    Corrupted {
        /// Its offset in the file.
        offset: u64,
        /// How often it was sent.
        tries: u32,
    },
    /// guestd broke the protocol.
    #[error("the Space broke the protocol: {0}")]
    Misconduct(Misconduct),
    /// The caller cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// Why a file was not moved out of the Space. Nothing was published on the host.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// guestd said no.
    #[error("{}", shown_text(&.0.message))]
    Remote(Fault),
    /// The folder of the target is not there.
    #[error("the folder of {} does not exist", shown(path))]
    TargetNotFound {
        /// The target.
        path: PathBuf,
    },
    /// The target is a folder, and the file in the Space has no name to give to the copy.
    #[error("{} is a directory", shown(path))]
    TargetIsDirectory {
        /// The target.
        path: PathBuf,
    },
    /// The target exists and a new file was wanted.
    #[error("{} exists already", shown(path))]
    TargetExists {
        /// The target.
        path: PathBuf,
    },
    /// The target may not be written.
    #[error("{} may not be written", shown(path))]
    TargetDenied {
        /// The target.
        path: PathBuf,
    },
    /// The host's disk is full.
    #[error("no space left on this computer for {}", shown(path))]
    HostDiskFull {
        /// The target.
        path: PathBuf,
    },
    /// The target could not be written.
    #[error("{} could not be written", shown(path))]
    TargetWrite {
        /// The target, `-` for a stream.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// More bytes than the caller wants in memory.
    #[error("the file has {size} bytes, more than the {most} that are allowed")]
    TooLarge {
        /// Bytes in the file.
        size: u64,
        /// Bytes allowed.
        most: u64,
    },
    /// The connection broke, or nothing answers.
    #[error("the connection to the Space was lost: {}", shown_text(reason))]
    ConnectionLost {
        /// What the transport said.
        reason: String,
    },
    /// guestd is silent.
    #[error("the Space has not answered for {} s", timeout.as_secs())]
    Stalled {
        /// How long was waited.
        timeout: Duration,
    },
    /// A part did not verify, whatever the route.
    #[error("the part at offset {offset} arrived damaged {tries} times")]
    Corrupted {
        /// Its offset in the file.
        offset: u64,
        /// How often it came.
        tries: u32,
    },
    /// guestd broke the protocol.
    #[error("the Space broke the protocol: {0}")]
    Misconduct(Misconduct),
    /// The caller cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl UploadError {
    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::SourceNotFound { .. } => ErrorKind::NotFound,
            Self::SourceDenied { .. } => ErrorKind::Denied,
            Self::Remote(fault) => fault_kind(fault),
            Self::ConnectionLost { .. } | Self::Stalled { .. } => ErrorKind::NoAnswer,
            Self::Cancelled => ErrorKind::Cancelled,
            Self::SourceIsDirectory { .. }
            | Self::SourceChanged { .. }
            | Self::SourceRead { .. }
            | Self::Corrupted { .. }
            | Self::Misconduct(_) => ErrorKind::Failed,
        }
    }

    /// The error for a source that the system refuses.
    pub(crate) fn source(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::SourceNotFound { path },
            io::ErrorKind::IsADirectory => Self::SourceIsDirectory { path },
            io::ErrorKind::PermissionDenied => Self::SourceDenied { path },
            _ => Self::SourceRead { path, source },
        }
    }
}

impl DownloadError {
    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Remote(fault) => fault_kind(fault),
            Self::TargetNotFound { .. } => ErrorKind::NotFound,
            Self::TargetDenied { .. } => ErrorKind::Denied,
            Self::HostDiskFull { .. } => ErrorKind::HostDiskFull,
            Self::ConnectionLost { .. } | Self::Stalled { .. } => ErrorKind::NoAnswer,
            Self::Cancelled => ErrorKind::Cancelled,
            Self::TargetIsDirectory { .. }
            | Self::TargetExists { .. }
            | Self::TargetWrite { .. }
            | Self::TooLarge { .. }
            | Self::Corrupted { .. }
            | Self::Misconduct(_) => ErrorKind::Failed,
        }
    }

    /// The error for a target that the system refuses.
    pub(crate) fn target(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::TargetNotFound { path },
            io::ErrorKind::IsADirectory => Self::TargetIsDirectory { path },
            io::ErrorKind::AlreadyExists => Self::TargetExists { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::TargetDenied { path }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::HostDiskFull { path }
            }
            _ => Self::TargetWrite { path, source },
        }
    }
}

impl From<Misconduct> for UploadError {
    fn from(misconduct: Misconduct) -> Self {
        Self::Misconduct(misconduct)
    }
}

impl From<Misconduct> for DownloadError {
    fn from(misconduct: Misconduct) -> Self {
        Self::Misconduct(misconduct)
    }
}

impl From<Fault> for UploadError {
    fn from(fault: Fault) -> Self {
        if fault.kind == FaultKind::Unavailable {
            let reason = fault.message;
            return Self::ConnectionLost { reason };
        }
        Self::Remote(fault)
    }
}

impl From<Fault> for DownloadError {
    fn from(fault: Fault) -> Self {
        if fault.kind == FaultKind::Unavailable {
            let reason = fault.message;
            return Self::ConnectionLost { reason };
        }
        Self::Remote(fault)
    }
}

fn fault_kind(fault: &Fault) -> ErrorKind {
    match fault.kind {
        FaultKind::PathNotFound => ErrorKind::NotFound,
        FaultKind::PermissionDenied | FaultKind::Unauthenticated => ErrorKind::Denied,
        FaultKind::Unavailable | FaultKind::DeadlineExceeded => ErrorKind::NoAnswer,
        FaultKind::FeatureUnsupported
        | FaultKind::PathExists
        | FaultKind::NotADirectory
        | FaultKind::IsADirectory
        | FaultKind::DiskFull
        | FaultKind::ChecksumMismatch
        | FaultKind::OffsetMismatch
        | FaultKind::SequenceGap
        | FaultKind::RateLimited
        | FaultKind::StaleEpoch
        | FaultKind::SessionNotFound
        | FaultKind::ProcessNotFound
        | FaultKind::LimitExceeded
        | FaultKind::NotInitialized
        | FaultKind::Internal
        | FaultKind::InvalidArgument
        | FaultKind::SourceChanged
        | FaultKind::Cancelled
        | FaultKind::Unimplemented => ErrorKind::Failed,
    }
}

/// A host path as text that cannot act on a terminal.
fn shown(path: &Path) -> impl fmt::Display {
    use std::os::unix::ffi::OsStrExt as _;
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = escape(path.as_os_str().as_bytes(), &mut text);
    text
}

/// Words of the Space, short and harmless.
pub(crate) fn shown_text(text: &str) -> String {
    const MOST_CHARS: usize = 400;
    let keep = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    text.chars().take(MOST_CHARS).map(keep).collect()
}
