//! The fixed sizes of the lane protocol, and why each is what it is.

/// One kibibyte in bytes.
pub const KIB: u64 = 1024;
/// One mebibyte in bytes.
pub const MIB: u64 = 1024 * KIB;
/// One gibibyte in bytes.
pub const GIB: u64 = 1024 * MIB;

/// Bytes of a file that share one SHA-256 digest.
///
/// Small enough that a 1 MiB file has sixteen of them, so that two vCPUs each fill the vector of
/// an eight-lane hash; large enough that the digests stay at 0.05 % of the data. The last leaf of
/// a file may be shorter. See `docs/adr/0003-small-leaves.md`.
pub const LEAF_BYTES: usize = 64 * 1024;

/// Bytes in one slot of the lane, and so the largest window.
///
/// Reads of the lane by a VM reach full speed from 4 MiB requests on; larger slots would only
/// raise the memory that a transfer pins.
pub const SLOT_BYTES: usize = 4 * 1024 * 1024;

/// Slots in the lane.
pub const SLOTS: u32 = 64;

/// Bytes at each end of the lane that belong to Airlock itself.
///
/// They keep uploaded bytes away from the places where kernels probe for partition tables, and
/// the first of them carries the boot configuration.
pub const LANE_RESERVED_BYTES: u64 = MIB;

/// The most slots that one transfer holds at a time.
pub const MAX_SLOTS_PER_TRANSFER: usize = 8;

/// Files up to this size travel inside the RPC itself.
pub const INLINE_MAX_BYTES: usize = 64 * 1024;

/// The largest piece of data in one message of the network route.
pub const NETWORK_CHUNK_BYTES: usize = MIB as usize;

/// Alignment of every offset, length and buffer of direct I/O on the lane.
pub const DIRECT_IO_ALIGN: usize = 4096;

/// Rounds `len` up to a multiple of [`DIRECT_IO_ALIGN`].
#[must_use]
pub const fn align_up(len: usize) -> usize {
    len.div_ceil(DIRECT_IO_ALIGN) * DIRECT_IO_ALIGN
}
