//! SHA-256 leaves and roots, interleaved hashing and constant-time compare.
//!
//! A file is cut into leaves of [`LEAF_BYTES`](airlock_model::size::LEAF_BYTES), each with its own
//! SHA-256, and the root is SHA-256 over the leaf digests. Leaves are independent, which is what
//! makes hashing fast: several vCPUs take different leaves, and one vCPU hashes several of them
//! side by side, one per vector lane ([`LeafHasher`]). In an emulated VM, where every guest
//! instruction is translated, that is several times faster than one leaf after another, and
//! hashing is the ceiling of a verified transfer there.
//!
//! SHA-256 follows FIPS 180-4 (<https://doi.org/10.6028/NIST.FIPS.180-4>); section numbers in this
//! crate are sections of it.

mod digest;
mod file;
#[cfg(target_arch = "x86_64")]
mod group;
mod kernel;
mod leaf;
mod rate;
mod root;
#[cfg(target_arch = "x86_64")]
mod sha256;
#[cfg(target_arch = "x86_64")]
mod simd;

pub use crate::digest::{Digest, ParseDigestError};
pub use crate::file::FileHasher;
pub use crate::leaf::LeafHasher;
pub use crate::rate::{copy_rate, sha256_rate};
pub use crate::root::{Mismatch, RootHasher, leaf_count, root, verify};
