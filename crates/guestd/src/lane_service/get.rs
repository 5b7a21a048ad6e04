//! One download: windows go into whatever slots the client has free, in any order.
//!
//! ```text
//!            a slot is free: next window      all sent, file unchanged
//!  open ──► sending ◄───────── credit ───────────────► ended ── stream ends ──► over
//!             │  ▲ resend: the part goes again, as data if asked         ▲
//!             │  └─────────────────────────────── resend ────────────────┘
//!             └── fault, lease ends ──► drained ──► over
//! ```
//!
//! A slot that cannot be written turns the rest of the transfer into data messages.

use std::collections::VecDeque;
use std::sync::Arc;

use airlock_digest::Digest;
use airlock_lane::{Coverage, LaneDevice, Part};
use airlock_model::size::{LEAF_BYTES, MIB, NETWORK_CHUNK_BYTES, SLOT_BYTES};
use airlock_wire::lane_v1::get_request::Message as Request;
use airlock_wire::lane_v1::get_response::Message as Response;
use airlock_wire::lane_v1::{Data, GetEnd, GetEntry, GetRequest, GetResponse, Resend, Window};
use airlock_wire::{Fault, FaultKind};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tonic::{Status, Streaming};

use self::job::{GetJob, Outcome, PieceError, Target};
use super::LaneShared;
use super::leases::LeaseUse;
use super::source::Source;

mod job;
mod open;

/// Data messages that were made and not yet taken by the connection, at most.
const DATA_IN_FLIGHT: usize = 2;
/// Data starts less than this past the first byte that the client has not verified. Without a
/// slot to wait for, parts would pile up at the client while an earlier one is sent again.
const DATA_AHEAD_BYTES: u64 = 8 * MIB;
/// Parts that a client may ask for again at a time; an honest one has fewer in flight.
const MAX_RESENDS: usize = 64;

/// A response, and the permit that its bytes take until the connection has them.
pub(crate) struct Outgoing {
    pub(crate) message: Result<GetResponse, Status>,
    /// Given back when the connection took the bytes and drops this.
    permit: Option<OwnedSemaphorePermit>,
}

impl Outgoing {
    fn new(message: Response) -> Self {
        Self {
            message: Ok(GetResponse {
                message: Some(message),
            }),
            permit: None,
        }
    }
}

/// Where the responses go.
pub(crate) type Responses = mpsc::Sender<Outgoing>;

/// Runs one download to its end.
pub(crate) async fn run(
    shared: Arc<LaneShared>,
    mut requests: Streaming<GetRequest>,
    responses: Responses,
) {
    let outcome = match Get::open(shared, &mut requests, responses.clone()).await {
        Ok(Opened::Inline(messages)) => {
            for message in messages {
                // A caller that went away wants no answer.
                let _ = responses.send(Outgoing::new(message)).await;
            }
            Ok(())
        }
        Ok(Opened::Transfer(entry, mut get)) => get.transfer(entry, requests).await,
        Err(fault) => Err(fault),
    };
    if let Err(fault) = outcome {
        let last = Outgoing {
            message: Err(fault.into()),
            permit: None,
        };
        let _ = responses.send(last).await;
    }
}

enum Opened {
    /// All there is to say about a small file.
    Inline(Vec<Response>),
    Transfer(GetEntry, Box<Get>),
}

struct Get {
    shared: Arc<LaneShared>,
    source: Arc<Source>,
    lane: Option<Lane>,
    /// What goes wrong with the lane, to be told with the next data.
    lane_error: Option<String>,
    start: u64,
    end: u64,
    /// First byte that was not yet sent.
    next: u64,
    window_bytes: usize,
    /// In file order, because the client takes them in that order.
    again: VecDeque<Piece>,
    /// Every byte before it was verified by the client.
    verified: u64,
    coverage: Coverage,
    ended: bool,
    in_flight: usize,
    outcomes: mpsc::UnboundedReceiver<Outcome>,
    report: mpsc::UnboundedSender<Outcome>,
    data_permits: Arc<Semaphore>,
    responses: Responses,
}

/// The lane as this transfer may use it.
struct Lane {
    device: Arc<LaneDevice>,
    lease: Arc<LeaseUse>,
    slots: Vec<u32>,
    free: VecDeque<u32>,
    broken: bool,
}

/// A stretch that goes over the wire as one message.
#[derive(Clone, Copy)]
struct Piece {
    offset: u64,
    bytes: usize,
    /// It went before and counts no second time.
    resent: bool,
}

impl Get {
    async fn transfer(
        &mut self,
        entry: GetEntry,
        requests: Streaming<GetRequest>,
    ) -> Result<(), Fault> {
        let result = match self.send(Outgoing::new(Response::Entry(entry))).await {
            Ok(()) => self.serve(requests).await,
            Err(fault) => Err(fault),
        };
        self.drain().await;
        result
    }

    /// Sends and listens until the client ends its stream.
    async fn serve(&mut self, mut requests: Streaming<GetRequest>) -> Result<(), Fault> {
        let lease_end = self.lane.as_ref().map(|lane| lane.lease.cancelled());
        loop {
            self.fill_slots()?;
            let wants_data = self.network() && self.pending().is_some();
            let permits = Arc::clone(&self.data_permits);
            tokio::select! {
                biased;
                () = cancelled(lease_end.as_ref()) => {
                    let message = "the lease ended during the transfer";
                    return Err(Fault::new(FaultKind::SessionNotFound, message));
                }
                Some(outcome) = self.outcomes.recv() => self.announce(outcome).await?,
                permit = permits.acquire_owned(), if wants_data => {
                    if let (Ok(permit), Some(piece)) = (permit, self.pending()) {
                        self.start(piece, Target::Message { permit })?;
                    }
                }
                request = requests.message() => match request {
                    Ok(Some(request)) => self.accept(&request)?,
                    Ok(None) => return Ok(()),
                    Err(status) => return Err(Fault::from_status(&status)),
                },
            }
        }
    }

    fn network(&self) -> bool {
        self.lane.as_ref().is_none_or(|lane| lane.broken)
    }

    /// The piece that goes next, if any is left and may go now.
    fn pending(&self) -> Option<Piece> {
        let network = self.network();
        let most = if network {
            NETWORK_CHUNK_BYTES
        } else {
            self.window_bytes
        };
        let mut piece = self.again.front().copied().or_else(|| {
            (self.next < self.end).then(|| Piece {
                offset: self.next,
                bytes: usize::try_from(self.end - self.next).unwrap_or(usize::MAX),
                resent: false,
            })
        })?;
        if network && piece.offset >= self.verified.saturating_add(DATA_AHEAD_BYTES) {
            return None;
        }
        piece.bytes = piece.bytes.min(if piece.resent && !network {
            SLOT_BYTES
        } else {
            most
        });
        Some(piece)
    }

    fn send_again(&mut self, piece: Piece) {
        let place = self
            .again
            .partition_point(|other| other.offset < piece.offset);
        self.again.insert(place, piece);
    }

    /// Counts `piece`, as [`pending`](Self::pending) gave it, as under way.
    fn take(&mut self, piece: Piece) {
        if let Some(first) = self.again.front_mut() {
            first.offset += piece.bytes as u64;
            first.bytes -= piece.bytes;
            if first.bytes == 0 {
                self.again.pop_front();
            }
        } else {
            self.next += piece.bytes as u64;
        }
        self.in_flight += 1;
    }

    /// Starts a window in every free slot.
    fn fill_slots(&mut self) -> Result<(), Fault> {
        while !self.network()
            && let Some(piece) = self.pending()
            && let Some(lane) = &mut self.lane
            && let Some(slot) = lane.free.pop_front()
        {
            let target = Target::Slot {
                device: Arc::clone(&lane.device),
                slot,
                _lease: Arc::clone(&lane.lease),
            };
            self.start(piece, target)?;
        }
        Ok(())
    }

    fn start(&mut self, piece: Piece, target: Target) -> Result<(), Fault> {
        self.take(piece);
        let source = Arc::clone(&self.source);
        let Piece {
            offset,
            bytes,
            resent,
        } = piece;
        let job = GetJob::new(offset, bytes, resent, source, target, self.report.clone());
        self.shared.workers.submit(Arc::new(job)).map_err(|error| {
            self.in_flight -= 1;
            super::no_thread(&error)
        })
    }

    /// Tells the client of a part that a thread has made.
    async fn announce(&mut self, outcome: Outcome) -> Result<(), Fault> {
        self.in_flight -= 1;
        let Outcome {
            offset,
            bytes,
            resent,
            target,
            result,
        } = outcome;
        let leaves = match result {
            Ok(leaves) => leaves,
            Err(PieceError::Read(error)) => return Err(self.source.fault(&error)),
            Err(PieceError::Lane(reason)) => {
                if let Some(lane) = &mut self.lane {
                    lane.broken = true;
                }
                self.lane_error.get_or_insert(reason);
                self.send_again(Piece {
                    offset,
                    bytes,
                    resent,
                });
                return Ok(());
            }
        };
        let part = Part::hashed(offset, bytes, leaves);
        if !resent {
            self.coverage
                .begin(&part)
                .map_err(|error| Fault::new(FaultKind::Internal, error.to_string()))?;
            self.coverage.complete(&part);
        }
        let leaf_sha256 = Bytes::from(part.leaf_bytes());
        let outgoing = match target {
            job::Made::Slot(slot) => Outgoing::new(Response::Window(Window {
                slot,
                offset,
                length: u32::try_from(bytes).unwrap_or(u32::MAX),
                leaf_sha256,
            })),
            job::Made::Message { data, permit } => {
                let mut outgoing = Outgoing::new(Response::Data(Data {
                    offset,
                    data,
                    leaf_sha256,
                    lane_error: self.lane_error.take().unwrap_or_default(),
                }));
                outgoing.permit = Some(permit);
                outgoing
            }
        };
        self.send(outgoing).await?;
        self.end_if_all_sent().await
    }

    async fn end_if_all_sent(&mut self) -> Result<(), Fault> {
        if self.ended || self.coverage.frontier() != self.end {
            return Ok(());
        }
        self.source.check_unchanged()?;
        self.ended = true;
        self.send(Outgoing::new(Response::End(GetEnd {
            size: self.end - self.start,
            root_sha256: root_bytes(self.coverage.root()),
        })))
        .await
    }

    fn accept(&mut self, request: &GetRequest) -> Result<(), Fault> {
        match &request.message {
            Some(Request::Credit(credit)) => {
                self.verified = self.verified.max(credit.verified);
                match credit.slot {
                    Some(slot) => self.free(slot, credit.retire),
                    None => Ok(()),
                }
            }
            Some(Request::Resend(resend)) => self.resend(resend),
            Some(Request::Open(_)) => Err(invalid("a download is opened once")),
            None => Err(invalid("an empty message")),
        }
    }

    fn free(&mut self, slot: u32, retire: bool) -> Result<(), Fault> {
        let Some(lane) = self.lane.as_mut().filter(|lane| lane.slots.contains(&slot)) else {
            return Err(invalid(format!("slot {slot} is not part of this download")));
        };
        if lane.free.contains(&slot) {
            return Err(invalid(format!("slot {slot} is free already")));
        }
        if retire {
            lane.slots.retain(|other| *other != slot);
        } else {
            lane.free.push_back(slot);
        }
        Ok(())
    }

    fn resend(&mut self, resend: &Resend) -> Result<(), Fault> {
        if let Some(slot) = resend.slot {
            self.free(slot, false)?;
        }
        if resend.network
            && let Some(lane) = &mut self.lane
        {
            lane.broken = true;
        }
        let end = resend.offset.checked_add(resend.length.into());
        let sent = resend.offset >= self.start
            && resend.offset.is_multiple_of(LEAF_BYTES as u64)
            && resend.length > 0
            && resend.length as usize <= SLOT_BYTES
            && end.is_some_and(|end| end <= self.next);
        if !sent {
            return Err(invalid("a part is asked for again that was not sent"));
        }
        if self.again.len() >= MAX_RESENDS {
            return Err(invalid("too many parts are asked for again"));
        }
        // What changed since the first time would not fit to the root.
        self.source.check_unchanged()?;
        self.send_again(Piece {
            offset: resend.offset,
            bytes: resend.length as usize,
            resent: true,
        });
        Ok(())
    }

    async fn send(&self, outgoing: Outgoing) -> Result<(), Fault> {
        self.responses
            .send(outgoing)
            .await
            .map_err(|_| Fault::new(FaultKind::Cancelled, "the download was abandoned"))
    }

    /// Waits until no thread works for this download any more.
    async fn drain(&mut self) {
        while self.in_flight > 0 {
            if self.outcomes.recv().await.is_none() {
                return;
            }
            self.in_flight -= 1;
        }
    }
}

fn root_bytes(root: Digest) -> Bytes {
    Bytes::copy_from_slice(root.as_ref())
}

async fn cancelled(token: Option<&tokio_util::sync::CancellationToken>) {
    match token {
        Some(token) => token.cancelled().await,
        None => std::future::pending().await,
    }
}

fn invalid(message: impl Into<String>) -> Fault {
    Fault::new(FaultKind::InvalidArgument, message)
}
