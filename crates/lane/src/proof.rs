//! The proof that host and Space see the same memory.
//!
//! A disk found by its serial number need not be the memory that the host holds, and a cache in
//! between need not be coherent. So before a lease is used, random bytes go through one of its
//! slots in each direction: the host writes a block at the slot's start, the Space reads it,
//! tells its digest and writes a block of its own right behind it, which the host reads.

use airlock_digest::{Digest, FileHasher};

use crate::{AlignedBuf, LaneDevice, LaneMemory, SlotError};

/// Bytes of one random block.
pub const PROOF_BYTES: usize = 4096;

/// What the Space says it found in a slot and left there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The slot.
    pub slot: u32,
    /// Digest of the host's block.
    pub read: Digest,
    /// Digest of the block that the Space wrote.
    pub written: Digest,
}

/// What the host expects of one slot.
#[derive(Debug, Clone, Copy)]
pub struct Challenge {
    slot: u32,
    expected: Digest,
}

/// Why a slot is not proven.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// The Space answered for another slot, or not at all.
    #[error("the Space did not answer for slot {slot}")]
    NoAnswer {
        /// The slot.
        slot: u32,
    },
    /// The Space does not see what the host wrote.
    #[error("the Space does not see what the host writes into slot {slot}")]
    NotSeenBySpace {
        /// The slot.
        slot: u32,
    },
    /// The host does not see what the Space wrote.
    #[error("the host does not see what the Space writes into slot {slot}")]
    NotSeenByHost {
        /// The slot.
        slot: u32,
    },
    /// A block could not be read or written.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// There are no random bytes.
    #[error("no random bytes for the proof")]
    Random(#[from] getrandom::Error),
}

impl Challenge {
    /// Writes a random block into `slot`, on the host.
    pub fn write(memory: &LaneMemory, slot: u32) -> Result<Self, ProofError> {
        let mut block = [0; PROOF_BYTES];
        getrandom::fill(&mut block)?;
        memory.write_slot(slot, 0, &block)?;
        Ok(Self {
            slot,
            expected: sha256(&block),
        })
    }

    /// The slot that it proves.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Compares what the Space answered with what the host sees.
    pub fn check(&self, memory: &LaneMemory, answers: &[Answer]) -> Result<(), ProofError> {
        let slot = self.slot;
        let answer = answers
            .iter()
            .find(|answer| answer.slot == slot)
            .ok_or(ProofError::NoAnswer { slot })?;
        if answer.read != self.expected {
            return Err(ProofError::NotSeenBySpace { slot });
        }
        let mut block = [0; PROOF_BYTES];
        memory.read_slot(slot, PROOF_BYTES as u64, &mut block)?;
        // A block of the host's own would prove nothing about the way back.
        if sha256(&block) != answer.written || answer.written == self.expected {
            return Err(ProofError::NotSeenByHost { slot });
        }
        Ok(())
    }
}

/// Reads the host's block in `slot` and writes one back, in the Space.
pub fn answer(lane: &LaneDevice, slot: u32) -> Result<Answer, ProofError> {
    let mut block = AlignedBuf::new(PROOF_BYTES);
    lane.read_slot(slot, 0, &mut block)?;
    let read = sha256(&block);
    getrandom::fill(&mut block)?;
    lane.write_slot(slot, PROOF_BYTES as u64, &block)?;
    Ok(Answer {
        slot,
        read,
        written: sha256(&block),
    })
}

fn sha256(bytes: &[u8]) -> Digest {
    let mut hasher = FileHasher::new();
    hasher.update(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::path::Path;

    use airlock_model::LaneGeometry;

    use super::*;

    fn memory() -> LaneMemory {
        LaneMemory::create(LaneGeometry::STANDARD).unwrap()
    }

    fn device(memory: &LaneMemory) -> LaneDevice {
        let file = File::from(memory.as_fd().try_clone_to_owned().unwrap());
        LaneDevice::adopt(file, Path::new("memfd")).unwrap()
    }

    #[test]
    fn the_same_memory_is_proven() {
        let memory = memory();
        let challenge = Challenge::write(&memory, 63).unwrap();
        let answers = [answer(&device(&memory), 63).unwrap()];
        challenge.check(&memory, &answers).unwrap();
    }

    #[test]
    fn other_memory_is_not() {
        let (ours, theirs) = (memory(), memory());
        let challenge = Challenge::write(&ours, 0).unwrap();
        let answers = [answer(&device(&theirs), 0).unwrap()];
        let refused = challenge.check(&ours, &answers);
        assert!(matches!(
            refused,
            Err(ProofError::NotSeenBySpace { slot: 0 })
        ));
        assert!(matches!(
            challenge.check(&ours, &[]),
            Err(ProofError::NoAnswer { slot: 0 })
        ));
    }

    #[test]
    fn a_write_that_does_not_come_back_is_noticed() {
        let memory = memory();
        let challenge = Challenge::write(&memory, 1).unwrap();
        let answers = [answer(&device(&memory), 1).unwrap()];
        memory.punch(1).unwrap();
        let refused = challenge.check(&memory, &answers);
        assert!(matches!(
            refused,
            Err(ProofError::NotSeenByHost { slot: 1 })
        ));
    }
}
