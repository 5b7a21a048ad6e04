//! The thread that feeds an upload: reads, hashes, fills slots, and sends again what was damaged.
//!
//! ```text
//!            a slot is free: read, hash, write, send        end of source
//!  reading ◄──────────────────────────────────────┐ ──────────────────────► finishing ──► done
//!     │  ▲ ack ok: the slot is free                │                            ▲
//!     │  └─────────────────────────────────────────┘   ack bad: the part again ─┘
//!     └── slot cannot be used, or three bad acks: all that follows goes as data
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use airlock_digest::{Digest, FileHasher, LeafHasher, RootHasher};
use airlock_lane::coverage::MAX_AHEAD_BYTES;
use airlock_lane::{Part, plan};
use airlock_model::size::{LEAF_BYTES, NETWORK_CHUNK_BYTES};
use airlock_wire::Fault;
use airlock_wire::lane_v1::put_ack::Result as AckResult;
use airlock_wire::lane_v1::put_request::Message as Request;
use airlock_wire::lane_v1::put_response::Message as Response;
use airlock_wire::lane_v1::{Data, PutAck, PutDone, PutRequest, Window};
use bytes::{Bytes, BytesMut};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{finish, message};
use crate::transfer::UploadError;
use crate::transfer::error::{Misconduct, shown_text};
use crate::transfer::lane::HeldSlots;
use crate::transfer::progress::Meter;
use crate::transfer::source::OpenSource;

/// Bytes that go over the connection as one message.
const CHUNK_BYTES: usize = NETWORK_CHUNK_BYTES;
/// Bytes of a window that are read, hashed and copied at once: sixteen leaves, which the widest
/// hash takes side by side and which fit in a CPU's second-level cache.
const PIECE_BYTES: usize = 16 * LEAF_BYTES;
/// Data messages without an answer, at most: enough to fill the connection.
const DATA_IN_FLIGHT: usize = 4;
/// How often one part is sent before its way counts as broken.
const MAX_TRIES: u32 = 3;

/// What comes from the Space.
pub(super) enum Event {
    Response(Response),
    Failed(Fault),
}

/// How patient the feeder is, and what else it does.
pub(super) struct Pace {
    pub(super) stall_timeout: Duration,
    pub(super) sha256: bool,
    pub(super) stop: CancellationToken,
}

/// What the feeder knows in the end.
pub(super) struct Fed {
    pub(super) bytes: u64,
    pub(super) root: Digest,
    pub(super) sha256: Option<Digest>,
    pub(super) network_reason: Option<String>,
    pub(super) leaf_retries: u64,
    pub(super) bytes_on_wire: u64,
    pub(super) done: PutDone,
}

/// A part without an answer.
struct Flight {
    part: Part,
    /// The slot it lies in; nothing when it went as data.
    slot: Option<u32>,
    tries: u32,
    /// Its bytes, where the source cannot give them again.
    kept: Option<Bytes>,
}

pub(super) struct Feeder {
    source: OpenSource,
    lane: Option<HeldSlots>,
    free: Vec<u32>,
    network_reason: Option<String>,
    /// The reason was not yet told to the Space.
    untold: bool,
    requests: mpsc::Sender<PutRequest>,
    events: mpsc::UnboundedReceiver<Event>,
    flights: BTreeMap<u64, Flight>,
    window_bytes: usize,
    ended: bool,
    root: RootHasher,
    sha256: Option<FileHasher>,
    leaf_retries: u64,
    bytes_on_wire: u64,
    meter: Meter,
    pace: Pace,
    runtime: Handle,
}

impl Feeder {
    pub(super) fn new(
        source: OpenSource,
        lane: Option<HeldSlots>,
        network_reason: Option<String>,
        requests: mpsc::Sender<PutRequest>,
        events: mpsc::UnboundedReceiver<Event>,
        meter: Meter,
        pace: Pace,
    ) -> Self {
        let mut free = lane
            .as_ref()
            .map_or(Vec::new(), |lane| lane.slots().to_vec());
        free.reverse();
        Self {
            window_bytes: plan::window_bytes(source.size(), free.len()),
            source,
            free,
            lane,
            untold: false,
            network_reason,
            requests,
            events,
            flights: BTreeMap::new(),
            ended: false,
            root: RootHasher::new(),
            sha256: pace.sha256.then(FileHasher::new),
            leaf_retries: 0,
            bytes_on_wire: 0,
            meter,
            pace,
            runtime: Handle::current(),
        }
    }

    /// Feeds until the file is published.
    pub(super) fn run(mut self) -> Result<Fed, UploadError> {
        loop {
            while let Ok(event) = self.events.try_recv() {
                if let Some(done) = self.handle(event)? {
                    return Ok(self.fed(done));
                }
            }
            if self.pace.stop.is_cancelled() {
                return Err(UploadError::Cancelled);
            }
            if self.may_read() {
                self.advance()?;
                continue;
            }
            let event = self.wait()?;
            if let Some(done) = self.handle(event)? {
                return Ok(self.fed(done));
            }
        }
    }

    fn fed(mut self, done: PutDone) -> Fed {
        self.meter.finish();
        Fed {
            bytes: self.source.offset(),
            root: self.root.finish(),
            sha256: self.sha256.map(FileHasher::finish),
            network_reason: self.network_reason,
            leaf_retries: self.leaf_retries,
            bytes_on_wire: self.bytes_on_wire,
            done,
        }
    }

    fn network(&self) -> bool {
        self.network_reason.is_some()
    }

    fn may_read(&self) -> bool {
        if self.ended {
            return false;
        }
        if self.source.size() == Some(self.source.offset()) {
            // Only finish is left, which needs no slot.
            return true;
        }
        // The Space takes nothing that is too far past its first missing byte.
        let oldest = self
            .flights
            .keys()
            .next()
            .copied()
            .unwrap_or(self.source.offset());
        let next_end = self.source.offset() + self.window_bytes as u64;
        if next_end - oldest > MAX_AHEAD_BYTES {
            return false;
        }
        if self.network() {
            self.flights.len() < DATA_IN_FLIGHT
        } else {
            !self.free.is_empty()
        }
    }

    /// Sends the next part, or finish.
    fn advance(&mut self) -> Result<(), UploadError> {
        let known_end = self.source.size() == Some(self.source.offset());
        let sent = !known_end
            && if self.network() {
                self.data()?
            } else {
                self.window()?
            };
        if !sent {
            self.source.check_unchanged()?;
            self.ended = true;
            let root = self.root.clone().finish();
            self.send(finish(self.source.offset(), root))?;
        }
        Ok(())
    }

    /// Fills a slot with the next window; false at the end of the source.
    fn window(&mut self) -> Result<bool, UploadError> {
        let (Some(lane), Some(slot)) = (&self.lane, self.free.pop()) else {
            return Ok(false);
        };
        let memory = lane.session().memory();
        let offset = self.source.offset();
        let repeat = self.source.can_repeat();
        let mut kept = BytesMut::new();
        let mut leaves = Vec::new();
        let mut filled = 0;
        let mut failure = None;
        while filled < self.window_bytes {
            let chunk = self
                .source
                .next(PIECE_BYTES.min(self.window_bytes - filled))?;
            if chunk.is_empty() {
                break;
            }
            LeafHasher::fastest().hash_leaves(chunk, &mut leaves);
            if let Some(hasher) = &mut self.sha256 {
                hasher.update(chunk);
            }
            if !repeat {
                kept.extend_from_slice(chunk);
            }
            if failure.is_none() {
                failure = memory.write_slot(slot, filled as u64, chunk).err();
            }
            filled += chunk.len();
            if !chunk.len().is_multiple_of(LEAF_BYTES) {
                break;
            }
        }
        if filled == 0 {
            self.free.push(slot);
            return Ok(false);
        }
        let part = Part::hashed(offset, filled, leaves);
        self.push_root(&part);
        let flight = Flight {
            part,
            slot: Some(slot),
            tries: 1,
            kept: (!repeat).then(|| kept.freeze()),
        };
        if let Some(error) = failure {
            self.leave_lane(&format!("the host's side of the lane failed: {error}"));
            self.free.push(slot);
            self.send_as_data(&flight)?;
        } else {
            self.send_window(flight, slot)?;
        }
        Ok(true)
    }

    /// Sends the next bytes as data; false at the end of the source.
    fn data(&mut self) -> Result<bool, UploadError> {
        let offset = self.source.offset();
        let chunk = self.source.next(CHUNK_BYTES)?;
        if chunk.is_empty() {
            return Ok(false);
        }
        if let Some(hasher) = &mut self.sha256 {
            hasher.update(chunk);
        }
        let part = Part::of(offset, chunk);
        let bytes = Bytes::copy_from_slice(chunk);
        self.push_root(&part);
        self.send_data(Flight {
            part,
            slot: None,
            tries: 1,
            kept: Some(bytes),
        })?;
        Ok(true)
    }

    fn push_root(&mut self, part: &Part) {
        for leaf in part.leaves() {
            self.root.push(leaf);
        }
    }

    fn send_window(&mut self, flight: Flight, slot: u32) -> Result<(), UploadError> {
        let window = Window {
            slot,
            offset: flight.part.offset(),
            length: u32::try_from(flight.part.bytes()).unwrap_or(u32::MAX),
            leaf_sha256: flight.part.leaf_bytes().into(),
        };
        self.flights.insert(flight.part.offset(), flight);
        self.send(message(Request::Window(window)))
    }

    fn send_data(&mut self, flight: Flight) -> Result<(), UploadError> {
        let lane_error = if std::mem::take(&mut self.untold) {
            self.network_reason.clone().unwrap_or_default()
        } else {
            String::new()
        };
        let data = flight.kept.clone().unwrap_or_default();
        self.bytes_on_wire += data.len() as u64;
        let data = Data {
            offset: flight.part.offset(),
            data,
            leaf_sha256: flight.part.leaf_bytes().into(),
            lane_error,
        };
        self.flights.insert(flight.part.offset(), flight);
        self.send(message(Request::Data(data)))
    }

    /// Sends a part that was meant for the lane over the connection, in pieces of its size.
    fn send_as_data(&mut self, flight: &Flight) -> Result<(), UploadError> {
        let bytes = self.bytes_of(flight)?;
        let leaves = flight.part.leaves().chunks(CHUNK_BYTES / LEAF_BYTES);
        for (index, leaves) in leaves.enumerate() {
            let start = index * CHUNK_BYTES;
            let piece = bytes.slice(start..bytes.len().min(start + CHUNK_BYTES));
            self.send_data(Flight {
                part: Part::hashed(
                    flight.part.offset() + start as u64,
                    piece.len(),
                    leaves.to_vec(),
                ),
                slot: None,
                tries: 1,
                kept: Some(piece),
            })?;
        }
        Ok(())
    }

    /// The bytes of a part once more, exactly those that were announced.
    fn bytes_of(&self, flight: &Flight) -> Result<Bytes, UploadError> {
        if let Some(kept) = &flight.kept {
            return Ok(kept.clone());
        }
        let bytes = self
            .source
            .again(flight.part.offset(), flight.part.bytes())?;
        match flight.part.verify(&bytes) {
            Ok(()) => Ok(bytes),
            Err(_) => Err(self.source.changed()),
        }
    }

    fn handle(&mut self, event: Event) -> Result<Option<PutDone>, UploadError> {
        match event {
            Event::Failed(fault) => Err(fault.into()),
            Event::Response(Response::Ack(ack)) => self.acknowledged(ack).map(|()| None),
            Event::Response(Response::Done(done)) => {
                if self.ended && self.flights.is_empty() {
                    Ok(Some(done))
                } else {
                    Err(Misconduct::Message.into())
                }
            }
        }
    }

    fn acknowledged(&mut self, ack: PutAck) -> Result<(), UploadError> {
        let flight = self
            .flights
            .remove(&ack.offset)
            .ok_or(Misconduct::Message)?;
        match ack.result.ok_or(Misconduct::Message)? {
            AckResult::Ok(_) => {
                self.meter.add(flight.part.bytes() as u64);
                self.free_slot(flight.slot);
                Ok(())
            }
            AckResult::Bad(_) => {
                self.leaf_retries += 1;
                self.damaged(flight)
            }
            // Data does not touch the lane.
            AckResult::LaneError(_) if flight.slot.is_none() => Err(Misconduct::Message.into()),
            AckResult::LaneError(reason) => {
                let reason = format!("the Space cannot use the lane: {}", shown_text(&reason));
                self.leave_lane(&reason);
                self.free_slot(flight.slot);
                self.send_as_data(&flight)
            }
        }
    }

    fn damaged(&mut self, mut flight: Flight) -> Result<(), UploadError> {
        let Some(slot) = flight.slot else {
            let (offset, tries) = (flight.part.offset(), flight.tries);
            if tries >= MAX_TRIES {
                return Err(UploadError::Corrupted { offset, tries });
            }
            flight.tries += 1;
            return self.send_data(flight);
        };
        if flight.tries >= MAX_TRIES {
            self.leave_lane(&format!("a window arrived damaged {MAX_TRIES} times"));
        }
        let again = self.bytes_of(&flight)?;
        if let Some(lane) = self.lane.as_ref().filter(|_| !self.network()) {
            match lane.session().memory().write_slot(slot, 0, &again) {
                Ok(()) => {
                    flight.tries += 1;
                    return self.send_window(flight, slot);
                }
                Err(error) => {
                    self.leave_lane(&format!("the host's side of the lane failed: {error}"));
                }
            }
        }
        self.free_slot(Some(slot));
        self.send_as_data(&flight)
    }

    fn free_slot(&mut self, slot: Option<u32>) {
        let Some(slot) = slot else { return };
        let shared = self.lane.as_mut().is_some_and(|lane| lane.share(slot));
        if !shared {
            self.free.push(slot);
        }
    }

    /// From now on everything goes over the connection.
    fn leave_lane(&mut self, reason: &str) {
        if self.network() {
            return;
        }
        if let Some(lane) = &self.lane {
            lane.session().set_broken(reason);
        }
        self.network_reason = Some(reason.to_owned());
        self.untold = true;
    }

    fn send(&mut self, request: PutRequest) -> Result<(), UploadError> {
        if self.requests.blocking_send(request).is_ok() {
            return Ok(());
        }
        // The call is over; the reason comes as an event.
        loop {
            if let Event::Failed(fault) = self.wait()? {
                return Err(fault.into());
            }
        }
    }

    fn wait(&mut self) -> Result<Event, UploadError> {
        let timeout = self.pace.stall_timeout;
        let next = tokio::time::timeout(timeout, self.events.recv());
        match self
            .runtime
            .block_on(self.pace.stop.run_until_cancelled(next))
        {
            None => Err(UploadError::Cancelled),
            Some(Err(_)) => Err(UploadError::Stalled { timeout }),
            Some(Ok(Some(event))) => Ok(event),
            Some(Ok(None)) => Err(Misconduct::EndOfStream.into()),
        }
    }
}
