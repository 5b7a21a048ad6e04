//! What a thread does with a piece of a part: copy out, check the copy, write the copy.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use airlock_lane::{AlignedBuf, LaneDevice, Part};
use airlock_model::size::{LEAF_BYTES, align_up};
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::lane_service::leases::LeaseUse;
use crate::lane_service::sink::Sink;
use crate::lane_service::with_source;
use crate::lane_service::workers::Job;

/// Where the bytes of a part are.
pub(super) enum Source {
    /// In the lane; the lease is held as long as a thread may look there.
    Slot {
        device: Arc<LaneDevice>,
        slot: u32,
        _lease: Arc<LeaseUse>,
    },
    /// In the message itself.
    Message(Bytes),
}

/// What became of a part.
pub(super) struct Outcome {
    pub(super) part: Part,
    pub(super) from_message: bool,
    pub(super) result: Result<(), PieceError>,
}

/// Why a piece is not written.
#[derive(Debug)]
pub(super) enum PieceError {
    /// These leaves of the part have other digests than announced.
    Bad(Vec<u32>),
    /// The slot could not be read.
    Lane(String),
    /// The file could not be written.
    Write(io::Error),
}

/// One part, shared by the threads that work on its pieces.
pub(super) struct PutJob {
    part: Part,
    source: Source,
    sink: Arc<Sink>,
    /// Bytes that no thread has finished.
    left: AtomicUsize,
    result: Mutex<Result<(), PieceError>>,
    report: mpsc::UnboundedSender<Outcome>,
}

impl PutJob {
    pub(super) fn new(
        part: Part,
        source: Source,
        sink: Arc<Sink>,
        report: mpsc::UnboundedSender<Outcome>,
    ) -> Self {
        Self {
            left: AtomicUsize::new(part.bytes()),
            part,
            source,
            sink,
            result: Mutex::new(Ok(())),
            report,
        }
    }

    fn piece(&self, range: &Range<usize>, buffer: &mut AlignedBuf) -> Result<(), PieceError> {
        if self.sink.is_cancelled() {
            return Ok(());
        }
        let bytes = range.len();
        let offset = self.part.offset() + range.start as u64;
        match &self.source {
            Source::Slot { device, slot, .. } => {
                let blocks = &mut buffer[..align_up(bytes)];
                device
                    .read_slot(*slot, range.start as u64, blocks)
                    .map_err(|error| PieceError::Lane(with_source(&error)))?;
                self.check(range, &buffer[..bytes])?;
                self.sink.write(buffer, bytes, offset)
            }
            Source::Message(data) => {
                let data = &data[range.clone()];
                self.check(range, data)?;
                if self.sink.is_direct() {
                    buffer[..bytes].copy_from_slice(data);
                    self.sink.write(buffer, bytes, offset)
                } else {
                    self.sink.write_buffered(data, offset)
                }
            }
        }
        .map_err(PieceError::Write)
    }

    fn check(&self, range: &Range<usize>, copy: &[u8]) -> Result<(), PieceError> {
        let first = range.start / LEAF_BYTES;
        self.part.verify_leaves(first, copy).map_err(|mismatch| {
            let bad = mismatch.bad_leaves.iter();
            PieceError::Bad(
                bad.filter_map(|leaf| u32::try_from(first + leaf).ok())
                    .collect(),
            )
        })
    }
}

impl Job for PutJob {
    fn bytes(&self) -> usize {
        self.part.bytes()
    }

    fn is_divisible(&self) -> bool {
        true
    }

    fn run(&self, range: Range<usize>, buffer: &mut AlignedBuf) {
        let piece = self.piece(&range, buffer);
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = piece {
            merge(&mut result, error);
        }
        if self.left.fetch_sub(range.len(), Ordering::AcqRel) == range.len() {
            let result = std::mem::replace(&mut *result, Ok(()));
            // An upload that ended meanwhile asks for no report.
            let _ = self.report.send(Outcome {
                part: self.part.clone(),
                from_message: matches!(self.source, Source::Message(_)),
                result,
            });
        }
    }
}

/// Joins the errors of two pieces: the one that ends the transfer wins over the one that does not.
fn merge(result: &mut Result<(), PieceError>, error: PieceError) {
    match (&mut *result, error) {
        (Err(PieceError::Bad(bad)), PieceError::Bad(more)) => bad.extend(more),
        (Ok(()) | Err(PieceError::Bad(_)), error)
        | (Err(PieceError::Lane(_)), error @ PieceError::Write(_)) => *result = Err(error),
        (Err(PieceError::Lane(_) | PieceError::Write(_)), _) => {}
    }
}
