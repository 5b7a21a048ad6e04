//! The wire: generated gRPC code of `cua.env.v1` (the contract that other clients speak too) and
//! `airlock.lane.v1` (ours), and the conversions between it and the model.
//!
//! The generated files are committed and checked for drift; regenerate with `cargo xtask codegen`.

pub mod fault;
pub mod lane;

pub use fault::{Fault, FaultKind};

/// Metadata key of the bearer token.
pub const AUTHORIZATION: &str = "authorization";
/// Metadata key of the same token where an outer hop owns [`AUTHORIZATION`].
pub const ENV_AUTHORIZATION: &str = "x-cua-env-authorization";
/// TCP port of guestd inside a Space.
pub const GUESTD_PORT: u16 = 3211;

/// HTTP/2 window of one stream in bytes, on both ends.
pub const STREAM_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
/// HTTP/2 window of a whole connection in bytes, on both ends.
pub const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
/// Largest HTTP/2 frame in bytes, on both ends.
pub const MAX_FRAME_BYTES: u32 = 1024 * 1024;
/// Largest gRPC message in bytes that either end accepts: the 8 MiB that guestd advertises.
pub const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;

/// Generated from `proto/cua/env/v1`.
pub mod cua {
    /// `cua.env.v1`.
    pub mod v1 {
        #![allow(
            missing_docs,
            clippy::pedantic,
            clippy::all,
            clippy::allow_attributes_without_reason,
            clippy::allow_attributes_without_reason,
            unreachable_pub,
            reason = "generated code"
        )]
        include!("generated/cua.env.v1.rs");
    }
}

/// Generated from `proto/airlock/lane/v1`.
pub mod lane_v1 {
    #![allow(
        missing_docs,
        clippy::pedantic,
        clippy::all,
        clippy::allow_attributes_without_reason,
        unreachable_pub,
        reason = "generated code"
    )]
    include!("generated/airlock.lane.v1.rs");
}
