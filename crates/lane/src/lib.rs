//! The lane: memory that host and Space share, and what both do with it.
//!
//! The host holds it as a sealed memfd ([`LaneMemory`]), the Space sees it as a raw disk or an
//! inherited descriptor ([`LaneDevice`]). Bulk bytes of a transfer lie in its slots; descriptors
//! and digests travel over the control connection. Nothing here knows an RPC or a VM.
//!
//! **The other side is hostile.** Either may write into the lane at any moment, so bytes are
//! copied out first and the copy is checked and used ([`window`]), and every number that comes
//! from the other side is checked before it is used.

pub mod aligned;
pub mod boot;
pub mod coverage;
pub mod device;
#[cfg(feature = "fault-injection")]
pub mod faults;
pub mod memory;
pub mod plan;
pub mod proof;
mod slot;
pub mod window;

pub use aligned::AlignedBuf;
pub use coverage::{Coverage, CoverageError};
pub use device::{LANE_SERIAL, LaneDevice, OpenError};
pub use memory::{AdoptError, LaneMemory};
pub use slot::SlotError;
pub use window::{Part, PartError};
