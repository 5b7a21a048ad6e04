//! What a thread does with a piece of a part: read it, hash it, put it where the client looks.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use airlock_digest::{Digest, LeafHasher, leaf_count};
use airlock_lane::{AlignedBuf, LaneDevice};
use airlock_model::size::{LEAF_BYTES, NETWORK_CHUNK_BYTES, align_up};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::lane_service::leases::LeaseUse;
use crate::lane_service::source::{ReadError, Source};
use crate::lane_service::with_source;
use crate::lane_service::workers::Job;

/// Where a part goes.
pub(super) enum Target {
    /// Into the lane; the lease is held as long as a thread may write there.
    Slot {
        device: Arc<LaneDevice>,
        slot: u32,
        _lease: Arc<LeaseUse>,
    },
    /// Into a message, at most one piece long.
    Message { permit: OwnedSemaphorePermit },
}

/// A part that is ready to be announced.
pub(super) enum Made {
    Slot(u32),
    Message {
        data: Bytes,
        permit: OwnedSemaphorePermit,
    },
}

/// What became of a part.
pub(super) struct Outcome {
    pub(super) offset: u64,
    pub(super) bytes: usize,
    pub(super) resent: bool,
    pub(super) target: Made,
    pub(super) result: Result<Vec<Digest>, PieceError>,
}

/// Why a piece was not made.
#[derive(Debug)]
pub(super) enum PieceError {
    /// The file could not be read.
    Read(ReadError),
    /// The slot could not be written.
    Lane(String),
}

/// One part, shared by the threads that work on its pieces.
pub(super) struct GetJob {
    offset: u64,
    bytes: usize,
    resent: bool,
    source: Arc<Source>,
    state: Mutex<State>,
    /// The lane's part of the target, for use without the lock.
    slot: Option<(Arc<LaneDevice>, u32)>,
    left: AtomicUsize,
    report: mpsc::UnboundedSender<Outcome>,
}

struct State {
    target: Option<Target>,
    data: Bytes,
    leaves: Vec<Option<Digest>>,
    error: Option<PieceError>,
}

impl GetJob {
    pub(super) fn new(
        offset: u64,
        bytes: usize,
        resent: bool,
        source: Arc<Source>,
        target: Target,
        report: mpsc::UnboundedSender<Outcome>,
    ) -> Self {
        let slot = match &target {
            Target::Slot { device, slot, .. } => Some((Arc::clone(device), *slot)),
            Target::Message { .. } => None,
        };
        debug_assert!(
            slot.is_some() || bytes <= NETWORK_CHUNK_BYTES,
            "a message is one piece"
        );
        Self {
            offset,
            bytes,
            resent,
            source,
            state: Mutex::new(State {
                target: Some(target),
                data: Bytes::new(),
                leaves: vec![None; leaf_count(bytes as u64) as usize],
                error: None,
            }),
            slot,
            left: AtomicUsize::new(bytes),
            report,
        }
    }

    fn piece(
        &self,
        range: &Range<usize>,
        buffer: &mut AlignedBuf,
    ) -> Result<(Vec<Digest>, Bytes), PieceError> {
        let bytes = range.len();
        let mut leaves = Vec::with_capacity(bytes.div_ceil(LEAF_BYTES));
        self.source
            .read(self.offset + range.start as u64, bytes, buffer)
            .map_err(PieceError::Read)?;
        LeafHasher::fastest().hash_leaves(&buffer[..bytes], &mut leaves);
        let Some((device, slot)) = &self.slot else {
            return Ok((leaves, Bytes::copy_from_slice(&buffer[..bytes])));
        };
        let blocks = align_up(bytes);
        // Bytes of another file must not leave the Space behind the end of this one.
        buffer[bytes..blocks].fill(0);
        device
            .write_slot(*slot, range.start as u64, &buffer[..blocks])
            .map_err(|error| PieceError::Lane(with_source(&error)))?;
        Ok((leaves, Bytes::new()))
    }

    fn outcome(&self, state: &mut State) -> Option<Outcome> {
        let target = match state.target.take()? {
            Target::Slot { slot, .. } => Made::Slot(slot),
            Target::Message { permit } => Made::Message {
                data: std::mem::take(&mut state.data),
                permit,
            },
        };
        let result = match state.error.take() {
            Some(error) => Err(error),
            None => Ok(state.leaves.iter().flatten().copied().collect()),
        };
        Some(Outcome {
            offset: self.offset,
            bytes: self.bytes,
            resent: self.resent,
            target,
            result,
        })
    }
}

impl Job for GetJob {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn is_divisible(&self) -> bool {
        self.slot.is_some()
    }

    fn run(&self, range: Range<usize>, buffer: &mut AlignedBuf) {
        // A download that nobody reports to is over.
        let piece = if self.report.is_closed() {
            Err(PieceError::Lane("the download is over".to_owned()))
        } else {
            self.piece(&range, buffer)
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match piece {
            Ok((leaves, data)) => {
                let first = range.start / LEAF_BYTES;
                for (place, leaf) in state.leaves[first..].iter_mut().zip(leaves) {
                    *place = Some(leaf);
                }
                state.data = data;
            }
            // What ends the transfer wins over what does not.
            Err(error @ PieceError::Read(_)) => state.error = Some(error),
            Err(error @ PieceError::Lane(_)) => {
                state.error.get_or_insert(error);
            }
        }
        if self.left.fetch_sub(range.len(), Ordering::AcqRel) == range.len()
            && let Some(outcome) = self.outcome(&mut state)
        {
            // A download that ended meanwhile asks for no report.
            let _ = self.report.send(outcome);
        }
    }
}
