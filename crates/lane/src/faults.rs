//! Faults on purpose, for tests: a lane that flips bits or stops working.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which uses of the lane fail. Each is counted from one; zero is never.
#[derive(Debug, Clone, Copy, Default)]
pub struct FaultPlan {
    /// Flip one bit of what every write from this one on left in the slot.
    pub flip_writes_from: u64,
    /// Flip one bit of what only this write left in the slot.
    pub flip_write: u64,
    /// From this write on every write fails.
    pub fail_writes_from: u64,
    /// From this read on every read fails.
    pub fail_reads_from: u64,
}

/// A plan and how far it is.
#[derive(Debug)]
pub struct LaneFaults {
    plan: FaultPlan,
    writes: AtomicU64,
    reads: AtomicU64,
    flips: AtomicU64,
}

impl LaneFaults {
    /// Faults as `plan` says, shared with whoever counts them.
    #[must_use]
    pub fn new(plan: FaultPlan) -> Arc<Self> {
        Arc::new(Self {
            plan,
            writes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            flips: AtomicU64::new(0),
        })
    }

    /// How many bits were flipped until now.
    pub fn flipped(&self) -> u64 {
        self.flips.load(Ordering::SeqCst)
    }

    pub(crate) fn before_read(&self) -> io::Result<()> {
        let nth = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
        broken(self.plan.fail_reads_from, nth)
    }

    /// What is to be written instead of `data`, if this write is hit.
    ///
    /// A real disk needs aligned buffers; this one is none, so it is for memory alone.
    pub(crate) fn before_write(&self, data: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let nth = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        broken(self.plan.fail_writes_from, nth)?;
        let every = self.plan.flip_writes_from != 0 && nth >= self.plan.flip_writes_from;
        if data.is_empty() || !(nth == self.plan.flip_write || every) {
            return Ok(None);
        }
        self.flips.fetch_add(1, Ordering::SeqCst);
        let mut flipped = data.to_vec();
        flipped[data.len() / 2] ^= 0x10;
        Ok(Some(flipped))
    }
}

fn broken(from: u64, nth: u64) -> io::Result<()> {
    if from != 0 && nth >= from {
        return Err(io::Error::other("the lane broke on purpose"));
    }
    Ok(())
}
