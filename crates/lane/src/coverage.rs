//! Which bytes of a file have arrived, when its parts come in any order.

use std::collections::BTreeMap;

use airlock_digest::{Digest, RootHasher};
use airlock_model::size::{LEAF_BYTES, MAX_SLOTS_PER_TRANSFER, SLOT_BYTES};

use crate::Part;

/// How far ahead of the first missing byte a part may lie.
///
/// Twice what all slots of a transfer hold, so an honest sender never meets it, while a hostile
/// one cannot make the receiver remember digests without end.
pub const MAX_AHEAD_BYTES: u64 = 2 * (MAX_SLOTS_PER_TRANSFER * SLOT_BYTES) as u64;

/// Keeps account of parts: each byte once, no hole, and the root over all leaves in file order.
///
/// It remembers only what lies past the first missing byte, so its size does not grow with the
/// file's.
#[derive(Debug)]
pub struct Coverage {
    /// Where the range starts in the file.
    start: u64,
    /// Every byte before it has arrived.
    frontier: u64,
    /// Parts from the frontier on, by offset.
    parts: BTreeMap<u64, Held>,
    root: RootHasher,
    /// Where a part ended inside a leaf: nothing can follow it.
    end: Option<u64>,
}

#[derive(Debug)]
struct Held {
    end: u64,
    /// `None` while the part is being checked.
    leaves: Option<Vec<Digest>>,
}

/// Why a part or a size does not fit to what came before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CoverageError {
    /// Some of its bytes came before.
    #[error("bytes {offset} to {end} were sent before")]
    Overlap {
        /// First byte of the part.
        offset: u64,
        /// One past its last byte.
        end: u64,
    },
    /// It leaves too large a hole.
    #[error("the part at {offset} lies too far past {frontier}, the first byte that is missing")]
    TooFarAhead {
        /// First byte of the part.
        offset: u64,
        /// First missing byte.
        frontier: u64,
    },
    /// It lies past the end that an earlier part or the size has set.
    #[error("the part that ends at {end} lies past the end of the file at {size}")]
    PastEnd {
        /// One past the last byte of the part.
        end: u64,
        /// The end.
        size: u64,
    },
}

impl Coverage {
    /// Starts an account of the bytes from `start` on, a multiple of the leaf size.
    #[must_use]
    pub fn new(start: u64) -> Self {
        Self {
            start,
            frontier: start,
            parts: BTreeMap::new(),
            root: RootHasher::new(),
            end: None,
        }
    }

    /// Takes a part in that is to be checked; it counts once [`complete`](Self::complete) is called.
    pub fn begin(&mut self, part: &Part) -> Result<(), CoverageError> {
        let (offset, end) = (part.offset(), part.end());
        let before = self.parts.range(..end).next_back();
        if offset < self.frontier || before.is_some_and(|(_, held)| held.end > offset) {
            return Err(CoverageError::Overlap { offset, end });
        }
        if end - self.frontier > MAX_AHEAD_BYTES {
            return Err(CoverageError::TooFarAhead {
                offset,
                frontier: self.frontier,
            });
        }
        if let Some(size) = self.end.filter(|size| end > *size) {
            return Err(CoverageError::PastEnd { end, size });
        }
        if !end.is_multiple_of(LEAF_BYTES as u64) {
            // Inside a leaf a file can only end.
            if let Some((_, last)) = self.parts.last_key_value().filter(|(_, l)| l.end > end) {
                return Err(CoverageError::PastEnd {
                    end: last.end,
                    size: end,
                });
            }
            self.end = Some(end);
        }
        self.parts.insert(offset, Held { end, leaves: None });
        Ok(())
    }

    /// Counts a part as arrived whole.
    pub fn complete(&mut self, part: &Part) {
        if let Some(held) = self.parts.get_mut(&part.offset()) {
            held.leaves = Some(part.leaves().to_vec());
        }
        while let Some(entry) = self.parts.first_entry()
            && *entry.key() == self.frontier
            && let Some(leaves) = &entry.get().leaves
        {
            for leaf in leaves {
                self.root.push(leaf);
            }
            self.frontier = entry.remove().end;
        }
    }

    /// Forgets a part that did not verify, so that it can come again.
    pub fn abandon(&mut self, part: &Part) {
        self.parts.remove(&part.offset());
        if self.end == Some(part.end()) && !part.end().is_multiple_of(LEAF_BYTES as u64) {
            self.end = None;
        }
    }

    /// Sets the end of the file, which no part may pass from now on.
    pub fn set_end(&mut self, size: u64) -> Result<(), CoverageError> {
        let reached = self
            .parts
            .last_key_value()
            .map_or(self.frontier, |(_, held)| held.end);
        if reached > size {
            return Err(CoverageError::PastEnd { end: reached, size });
        }
        if let Some(end) = self.end.filter(|end| *end != size) {
            return Err(CoverageError::PastEnd {
                end: size,
                size: end,
            });
        }
        self.end = Some(size);
        Ok(())
    }

    /// First byte that is missing.
    #[must_use]
    pub fn frontier(&self) -> u64 {
        self.frontier
    }

    /// Bytes that have arrived without a hole before them.
    #[must_use]
    pub fn covered_bytes(&self) -> u64 {
        self.frontier - self.start
    }

    /// Whether every byte up to `size` has arrived and nothing is under way.
    #[must_use]
    pub fn is_complete(&self, size: u64) -> bool {
        self.frontier == size && self.parts.is_empty()
    }

    /// The root over all leaves up to the frontier.
    #[must_use]
    pub fn root(&self) -> Digest {
        self.root.clone().finish()
    }
}

#[cfg(test)]
mod tests;
