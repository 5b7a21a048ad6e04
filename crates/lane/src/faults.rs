//! Faults on purpose, for tests: a lane that flips bits or stops working.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// A fault that happens at the n-th use of the lane, counted from one; zero is never.
#[derive(Debug, Default)]
pub struct LaneFaults {
    writes: AtomicU64,
    reads: AtomicU64,
    flips: AtomicU64,
    /// Flip one bit of what these many writes, from the first on, left in the slot.
    pub flip_first_writes: u64,
    /// Flip one bit of what only this write left in the slot.
    pub flip_write: u64,
    /// From this write on every write fails.
    pub fail_writes_from: u64,
    /// From this read on every read fails.
    pub fail_reads_from: u64,
}

impl LaneFaults {
    /// How many bits were flipped until now.
    pub fn flipped(&self) -> u64 {
        self.flips.load(Ordering::SeqCst)
    }

    pub(crate) fn before_read(&self) -> io::Result<()> {
        let nth = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
        broken(self.fail_reads_from, nth)
    }

    pub(crate) fn before_write(&self) -> io::Result<()> {
        let nth = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        broken(self.fail_writes_from, nth)
    }

    /// What the slot holds instead of `data` after this write, if it is hit.
    pub(crate) fn flip(&self, data: &[u8]) -> Option<Vec<u8>> {
        let nth = self.writes.load(Ordering::SeqCst);
        if data.is_empty() || !(nth == self.flip_write || nth <= self.flip_first_writes) {
            return None;
        }
        self.flips.fetch_add(1, Ordering::SeqCst);
        let mut flipped = data.to_vec();
        flipped[data.len() / 2] ^= 0x10;
        Some(flipped)
    }
}

fn broken(from: u64, nth: u64) -> io::Result<()> {
    if from != 0 && nth >= from {
        return Err(io::Error::other("the lane broke on purpose"));
    }
    Ok(())
}
