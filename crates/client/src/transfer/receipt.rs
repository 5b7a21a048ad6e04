//! What a finished transfer tells.

use std::time::Duration;

use airlock_digest::Digest;
use airlock_model::Route;

/// Proof and account of one transfer: every byte counted here was verified by the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Bytes of the file.
    pub bytes: u64,
    /// SHA-256 over the digests of all leaves.
    pub root: Digest,
    /// The ordinary SHA-256 of the file, where it was asked for.
    pub sha256: Option<Digest>,
    /// Which way the bytes went; one byte over the network makes it `network`.
    pub route: Route,
    /// Why the lane was not used, or not to the end.
    pub route_reason: Option<String>,
    /// Parts that arrived damaged and were sent again.
    pub leaf_retries: u64,
    /// Where the file is now: in the Space after an upload, on the host after a download to a
    /// path; empty after a download to memory or a stream.
    pub path: Vec<u8>,
    /// A file was there before.
    pub replaced: bool,
    /// Bytes of the file that went over the connection instead of the lane.
    pub bytes_on_wire: u64,
    /// From the first message to the last.
    pub elapsed: Duration,
}
