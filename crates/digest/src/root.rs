//! The root over the leaves of a file, and what to do when a leaf is wrong.

use std::fmt;

use airlock_model::size::LEAF_BYTES;

use crate::digest::Digest;
use crate::file::FileHasher;

/// How many leaves a file of `len` bytes has; an empty one has none.
#[must_use]
pub const fn leaf_count(len: u64) -> u64 {
    len.div_ceil(LEAF_BYTES as u64)
}

/// SHA-256 over the concatenated leaf digests, in file order.
///
/// A file without leaves has the root SHA-256 of nothing.
#[must_use]
pub fn root(leaves: &[Digest]) -> Digest {
    let mut hasher = RootHasher::new();
    for leaf in leaves {
        hasher.push(leaf);
    }
    hasher.finish()
}

/// [`root`] for leaves that arrive one window after the other.
#[derive(Debug, Clone, Default)]
pub struct RootHasher(FileHasher);

impl RootHasher {
    /// Starts with a file without leaves.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the digest of the next leaf in file order.
    pub fn push(&mut self, leaf: &Digest) {
        self.0.update(leaf.as_bytes());
    }

    /// The root over everything pushed.
    #[must_use]
    pub fn finish(self) -> Digest {
        self.0.finish()
    }
}

/// Compares the digests of leaves with the ones that were announced for them.
///
/// All are compared even after a difference, because only the leaves that differ are sent again.
pub fn verify(expected: &[Digest], actual: &[Digest]) -> Result<(), Mismatch> {
    let common = expected.len().min(actual.len());
    let differing = (0..common).filter(|&index| !expected[index].ct_eq(&actual[index]));
    let unpaired = common..expected.len().max(actual.len());
    let bad_leaves: Vec<usize> = differing.chain(unpaired).collect();
    if bad_leaves.is_empty() {
        return Ok(());
    }
    Err(Mismatch {
        bad_leaves,
        expected_leaves: expected.len(),
        actual_leaves: actual.len(),
    })
}

/// Which leaves are not what was announced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Mismatch {
    /// Indices of the leaves that differ or stand on one side alone, ascending and never empty.
    pub bad_leaves: Vec<usize>,
    /// Leaves announced.
    pub expected_leaves: usize,
    /// Leaves found.
    pub actual_leaves: usize,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bad_leaves,
            expected_leaves,
            actual_leaves,
        } = self;
        if expected_leaves != actual_leaves {
            return write!(
                f,
                "{expected_leaves} leaves were announced, {actual_leaves} found"
            );
        }
        write!(
            f,
            "{} of {expected_leaves} leaves have another SHA-256",
            bad_leaves.len()
        )?;
        match bad_leaves.first() {
            Some(first) => write!(f, ", the first is leaf {first}"),
            None => Ok(()),
        }
    }
}
