//! Errors on the wire, one file for both ways.
//!
//! A [`Fault`] becomes a `tonic::Status` whose `grpc-status-details-bin` holds a
//! `google.rpc.Status` with exactly one `cua.env.v1.ErrorInfo`; clients act on its reason.
//! Kinds that the contract has no reason for travel as the bare gRPC code.

use std::collections::HashMap;
use std::fmt;

use prost::Message;
use tonic::{Code, Status};

use crate::cua::v1::{ErrorInfo, ErrorReason};

const ERROR_INFO_URL: &str = "type.googleapis.com/cua.env.v1.ErrorInfo";

/// `google.rpc.Status`, from the public `google/rpc/status.proto`.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

macro_rules! fault_kinds {
    ($($(#[$doc:meta])* $kind:ident = $code:ident $(, $reason:ident)?;)+) => {
        /// What went wrong, as far as a program can act on it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum FaultKind { $($(#[$doc])* $kind,)+ }

        impl FaultKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// The gRPC code it travels with.
            pub fn code(self) -> Code {
                match self { $(Self::$kind => Code::$code),+ }
            }

            /// The reason of the contract, where it has one.
            pub fn reason(self) -> Option<ErrorReason> {
                match self { $(Self::$kind => fault_kinds!(@reason $($reason)?)),+ }
            }
        }
    };
    (@reason) => { None };
    (@reason $reason:ident) => { Some(ErrorReason::$reason) };
}

fault_kinds! {
    /// No token, or a wrong one.
    Unauthenticated = Unauthenticated, Unauthenticated;
    /// The file system or a rule said no.
    PermissionDenied = PermissionDenied, PermissionDenied;
    /// guestd has no such ability here.
    FeatureUnsupported = FailedPrecondition, FeatureUnsupported;
    /// No such file or folder.
    PathNotFound = NotFound, PathNotFound;
    /// Something is there already.
    PathExists = AlreadyExists, PathExists;
    /// A folder was needed.
    NotADirectory = FailedPrecondition, NotADirectory;
    /// A file was needed.
    IsADirectory = FailedPrecondition, IsADirectory;
    /// No space left in the Space.
    DiskFull = ResourceExhausted, DiskFull;
    /// Content does not have the digest that was announced.
    ChecksumMismatch = FailedPrecondition, ChecksumMismatch;
    /// A piece does not start where the last one ended.
    OffsetMismatch = FailedPrecondition, OffsetMismatch;
    /// An input was skipped.
    SequenceGap = FailedPrecondition, SequenceGap;
    /// Too many calls.
    RateLimited = ResourceExhausted, RateLimited;
    /// The caller's epoch is over.
    StaleEpoch = FailedPrecondition, StaleEpoch;
    /// No such upload.
    SessionNotFound = NotFound, SessionNotFound;
    /// No such command.
    ProcessNotFound = NotFound, ProcessNotFound;
    /// A value is larger than allowed.
    LimitExceeded = InvalidArgument, LimitExceeded;
    /// `Init` has not been called.
    NotInitialized = FailedPrecondition, NotInitialized;
    /// A fault of guestd itself, or an I/O error without a better name.
    Internal = Internal, Internal;
    /// The request makes no sense.
    InvalidArgument = InvalidArgument;
    /// The source changed while it was read; nothing was published.
    SourceChanged = Aborted;
    /// The caller gave up.
    Cancelled = Cancelled;
    /// It took longer than the caller allowed.
    DeadlineExceeded = DeadlineExceeded;
    /// The connection broke, or nothing listens.
    Unavailable = Unavailable;
    /// No such RPC.
    Unimplemented = Unimplemented;
}

/// An error that crosses the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What a program acts on.
    pub kind: FaultKind,
    /// What a person reads: names the path or the value, and the cause.
    pub message: String,
    /// Further values by the contract's keys, `expected_offset` for one.
    pub metadata: HashMap<String, String>,
}

impl Fault {
    /// A fault without metadata.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            metadata: HashMap::new(),
        }
    }

    /// The fault with one more value.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.metadata.insert(key.to_owned(), value.to_string());
        self
    }

    /// The fault for an I/O error at `path`, given as it shall be shown.
    ///
    /// The error numbers are Linux's; the Space is always Linux.
    pub fn from_io(path: impl fmt::Display, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as E;
        // A quota is a full disk to whoever writes; the standard library has its own kind for it.
        let kind = match error.kind() {
            E::NotFound => FaultKind::PathNotFound,
            E::PermissionDenied | E::ReadOnlyFilesystem => FaultKind::PermissionDenied,
            E::AlreadyExists | E::DirectoryNotEmpty => FaultKind::PathExists,
            E::NotADirectory => FaultKind::NotADirectory,
            E::IsADirectory => FaultKind::IsADirectory,
            E::StorageFull | E::QuotaExceeded => FaultKind::DiskFull,
            E::InvalidInput | E::InvalidFilename => FaultKind::InvalidArgument,
            E::FileTooLarge => FaultKind::LimitExceeded,
            _ => FaultKind::Internal,
        };
        Self::new(kind, format!("{path}: {error}"))
    }

    /// The fault that `status` carries.
    ///
    /// Whatever the other side sent, this answers: details that do not parse are ignored and the
    /// gRPC code decides.
    pub fn from_status(status: &Status) -> Self {
        if let Some(info) = error_info(status)
            && let Some(kind) = FaultKind::ALL
                .iter()
                .find(|k| k.reason() == Some(info.reason()))
        {
            let message = if info.message.is_empty() {
                status.message().to_owned()
            } else {
                info.message
            };
            let mut metadata = info.metadata;
            if !info.feature.is_empty() {
                metadata.insert("feature".to_owned(), info.feature);
            }
            return Self {
                kind: *kind,
                message,
                metadata,
            };
        }
        // Only a status that was made on this side has a source: the connection broke. Its code is
        // tonic's guess (`Cancelled` for one that was never there), and no word of guestd's.
        let is_local = std::error::Error::source(status).is_some();
        let kind = match status.code() {
            Code::DeadlineExceeded => FaultKind::DeadlineExceeded,
            _ if is_local => FaultKind::Unavailable,
            Code::Unauthenticated => FaultKind::Unauthenticated,
            Code::PermissionDenied => FaultKind::PermissionDenied,
            Code::NotFound => FaultKind::PathNotFound,
            Code::AlreadyExists => FaultKind::PathExists,
            Code::InvalidArgument | Code::OutOfRange => FaultKind::InvalidArgument,
            Code::Aborted => FaultKind::SourceChanged,
            Code::Cancelled => FaultKind::Cancelled,
            Code::Unavailable => FaultKind::Unavailable,
            Code::Unimplemented => FaultKind::Unimplemented,
            Code::ResourceExhausted => FaultKind::LimitExceeded,
            Code::Ok
            | Code::Unknown
            | Code::FailedPrecondition
            | Code::Internal
            | Code::DataLoss => FaultKind::Internal,
        };
        if is_local && kind == FaultKind::Unavailable {
            // What the protocol's library says of it is no text for people.
            tracing::debug!(%status, "a connection to guestd broke");
            return Self::new(kind, "the connection to the Space broke off");
        }
        Self::new(kind, status.message())
    }

    /// Whether trying again may help: the transport broke, not the request.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, FaultKind::Unavailable | FaultKind::RateLimited)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        let code = fault.kind.code();
        let Some(reason) = fault.kind.reason() else {
            return Status::new(code, fault.message);
        };
        let feature = fault.metadata.get("feature").cloned().unwrap_or_default();
        let info = ErrorInfo {
            reason: reason.into(),
            message: fault.message.clone(),
            feature,
            metadata: fault.metadata,
        };
        let details = RpcStatus {
            code: code.into(),
            message: fault.message.clone(),
            details: vec![prost_types::Any {
                type_url: ERROR_INFO_URL.to_owned(),
                value: info.encode_to_vec(),
            }],
        };
        Status::with_details(code, fault.message, details.encode_to_vec().into())
    }
}

fn error_info(status: &Status) -> Option<ErrorInfo> {
    let details = RpcStatus::decode(status.details()).ok()?;
    let any = details
        .details
        .iter()
        .find(|any| any.type_url == ERROR_INFO_URL)?;
    ErrorInfo::decode(any.value.as_slice()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_round_trips() {
        for kind in FaultKind::ALL {
            let fault = Fault::new(*kind, "it broke");
            let fault = if kind.reason().is_some() {
                fault.with("expected_offset", 7)
            } else {
                fault
            };
            assert_eq!(
                Fault::from_status(&Status::from(fault.clone())),
                fault,
                "{kind:?}"
            );
        }
    }

    #[test]
    fn a_broken_connection_is_no_answer_whatever_its_code() {
        for code in [
            Code::Unknown,
            Code::Internal,
            Code::Cancelled,
            Code::ResourceExhausted,
            Code::PermissionDenied,
        ] {
            let mut status = Status::new(code, "operation was canceled");
            assert_ne!(Fault::from_status(&status).kind, FaultKind::Unavailable);
            status.set_source(std::sync::Arc::new(std::io::Error::other("reset")));
            let fault = Fault::from_status(&status);
            assert_eq!(fault.kind, FaultKind::Unavailable, "{code:?}");
        }
    }

    #[test]
    fn details_are_one_error_info_in_a_google_status() {
        let status = Status::from(Fault::new(FaultKind::PathNotFound, "/x: no such file"));
        assert_eq!(status.code(), Code::NotFound);
        let rpc = RpcStatus::decode(status.details()).unwrap();
        assert_eq!(rpc.details.len(), 1);
        assert_eq!(rpc.details[0].type_url, ERROR_INFO_URL);
    }

    #[test]
    fn rubbish_details_fall_back_to_the_code() {
        let status = Status::with_details(Code::NotFound, "gone", vec![0xff; 64].into());
        assert_eq!(Fault::from_status(&status).kind, FaultKind::PathNotFound);
    }
}
