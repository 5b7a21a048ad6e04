//! Parts of a file as they are announced, and the check of a copy against the announcement.

use airlock_digest::{Digest, LeafHasher, Mismatch, leaf_count, verify};
use airlock_model::size::LEAF_BYTES;

/// A part of a file that one side announces to the other: where it lies and what it must hash to.
///
/// It exists only with numbers that make sense together, so whoever holds one may compute with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    offset: u64,
    bytes: usize,
    leaves: Vec<Digest>,
}

/// Why an announcement is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// It does not start at a leaf.
    #[error("the part at offset {offset} does not start at a leaf of {LEAF_BYTES} bytes")]
    Offset {
        /// Offset announced.
        offset: u64,
    },
    /// It is empty or too long.
    #[error("a part of {bytes} bytes was announced, it must have 1 to {most}")]
    Length {
        /// Length announced.
        bytes: u64,
        /// The most that is allowed here.
        most: usize,
    },
    /// It reaches past the largest offset there is.
    #[error("{bytes} bytes at offset {offset} reach past the end of any file")]
    End {
        /// Offset announced.
        offset: u64,
        /// Length announced.
        bytes: u64,
    },
    /// It has too few or too many digests.
    #[error("{got} bytes of digests for a part that needs {expected}")]
    Digests {
        /// Bytes of digests announced.
        got: usize,
        /// Bytes that the length calls for.
        expected: u64,
    },
}

/// The largest file size there is: offsets are signed in every system call.
const MAX_FILE_BYTES: u64 = i64::MAX.cast_unsigned();

impl Part {
    /// Checks an announcement that came from the other side; `most` is the longest part allowed.
    pub fn announced(
        offset: u64,
        bytes: u64,
        leaf_sha256: &[u8],
        most: usize,
    ) -> Result<Self, PartError> {
        if !offset.is_multiple_of(LEAF_BYTES as u64) {
            return Err(PartError::Offset { offset });
        }
        let length = usize::try_from(bytes)
            .ok()
            .filter(|length| (1..=most).contains(length))
            .ok_or(PartError::Length { bytes, most })?;
        if offset
            .checked_add(bytes)
            .is_none_or(|end| end > MAX_FILE_BYTES)
        {
            return Err(PartError::End { offset, bytes });
        }
        let expected = leaf_count(bytes) * Digest::BYTES as u64;
        if leaf_sha256.len() as u64 != expected {
            return Err(PartError::Digests {
                got: leaf_sha256.len(),
                expected,
            });
        }
        let (digests, _) = leaf_sha256.as_chunks::<{ Digest::BYTES }>();
        Ok(Self {
            offset,
            bytes: length,
            leaves: digests.iter().copied().map(Digest::from_bytes).collect(),
        })
    }

    /// The part that `data` at `offset` is, hashed here.
    #[must_use]
    pub fn of(offset: u64, data: &[u8]) -> Self {
        let mut leaves = Vec::new();
        LeafHasher::fastest().hash_leaves(data, &mut leaves);
        Self {
            offset,
            bytes: data.len(),
            leaves,
        }
    }

    /// Puts a part together from digests that were made here; they must be as many as `bytes` has
    /// leaves.
    #[must_use]
    pub fn hashed(offset: u64, bytes: usize, leaves: Vec<Digest>) -> Self {
        debug_assert_eq!(leaves.len() as u64, leaf_count(bytes as u64));
        Self {
            offset,
            bytes,
            leaves,
        }
    }

    /// First byte in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// One past the last byte in the file.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.bytes as u64
    }

    /// Digest of each leaf.
    #[must_use]
    pub fn leaves(&self) -> &[Digest] {
        &self.leaves
    }

    /// The digests as the wire carries them.
    #[must_use]
    pub fn leaf_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.leaves.len() * Digest::BYTES);
        for leaf in &self.leaves {
            bytes.extend_from_slice(leaf.as_ref());
        }
        bytes
    }

    /// Checks a copy of the part: private memory that the other side cannot reach any more.
    ///
    /// Hashing the slot itself and using it afterwards would check other bytes than are used.
    pub fn verify(&self, copy: &[u8]) -> Result<(), Mismatch> {
        self.verify_leaves(0, copy)
    }

    /// [`verify`](Self::verify) for a copy of the leaves from `first` on, as one worker has them.
    ///
    /// The indices of bad leaves count from `first`.
    pub fn verify_leaves(&self, first: usize, copy: &[u8]) -> Result<(), Mismatch> {
        let mut actual = Vec::with_capacity(copy.len().div_ceil(LEAF_BYTES));
        LeafHasher::fastest().hash_leaves(copy, &mut actual);
        let expected = self.leaves.get(first..).unwrap_or(&[]);
        let count = actual.len().min(expected.len());
        verify(&expected[..count], &actual)
    }
}

#[cfg(test)]
mod tests;
