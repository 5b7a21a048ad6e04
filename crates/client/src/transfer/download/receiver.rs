//! The thread that receives a download: copies out, checks the copy, writes it, frees the slot.
//!
//! Everything here comes from a Space that may be hostile: no number is used before it is
//! checked, nothing is hashed in place, and no more is remembered than an honest guestd needs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use airlock_digest::{Digest, FileHasher, RootHasher};
use airlock_lane::{AlignedBuf, CoverageError, Part};
use airlock_model::size::{INLINE_MAX_BYTES, LEAF_BYTES, NETWORK_CHUNK_BYTES, SLOT_BYTES};
use airlock_wire::Fault;
use airlock_wire::lane_v1::get_request::Message as Request;
use airlock_wire::lane_v1::get_response::Message as Response;
use airlock_wire::lane_v1::{Credit, Data, GetEntry, GetRequest, Resend, Window};
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::GuestPath;
use crate::transfer::download::writer::Out;
use crate::transfer::error::{Misconduct, shown_text};
use crate::transfer::lane::HeldSlots;
use crate::transfer::progress::Meter;
use crate::transfer::target::{OpenTarget, Placed, PublishOptions};
use crate::transfer::{DownloadError, Target};

/// Parts that wait for the ones before them, at most: an honest guestd has eight windows and seven
/// data messages ahead.
pub(super) const MAX_PENDING: usize = 16;
/// Bytes copied, checked and written at once: sixteen leaves, which the widest hash takes side by
/// side and which fit in a CPU's second-level cache.
const PIECE_BYTES: usize = 16 * LEAF_BYTES;
/// From this size on a thread of its own writes: starting it takes longer than it saves below.
const THREAD_MIN_BYTES: u64 = 8 * PIECE_BYTES as u64;
/// How often one part is asked for before its way counts as broken.
const MAX_TRIES: u32 = 3;

/// What comes from the Space.
pub(super) enum Event {
    Response(Option<Response>),
    Failed(Fault),
}

/// How the download shall be done.
pub(super) struct Settings {
    pub(super) publish: PublishOptions,
    pub(super) sha256: bool,
    pub(super) stall_timeout: Duration,
    pub(super) stop: CancellationToken,
}

/// What the receiver knows in the end.
pub(super) struct Received {
    pub(super) placed: Placed,
    pub(super) bytes: u64,
    pub(super) root: Digest,
    pub(super) sha256: Option<Digest>,
    pub(super) inline: bool,
    pub(super) network_reason: Option<String>,
    pub(super) leaf_retries: u64,
    pub(super) bytes_on_wire: u64,
}

/// A part that was announced and not yet taken.
struct Pending {
    part: Part,
    content: Content,
}

enum Content {
    Slot(u32),
    Message(Bytes),
}

pub(super) struct Receiver {
    /// Taken when the entry comes.
    target: Option<Target>,
    source: GuestPath,
    lane: Option<HeldSlots>,
    /// Slots that the Space may fill now.
    given: BTreeSet<u32>,
    network_reason: Option<String>,
    requests: mpsc::UnboundedSender<GetRequest>,
    events: mpsc::Receiver<Event>,
    pending: BTreeMap<u64, Pending>,
    pending_data_bytes: usize,
    frontier: u64,
    tries: u32,
    root: RootHasher,
    end: Option<(u64, Bytes)>,
    sha256: Option<FileHasher>,
    leaf_retries: u64,
    bytes_on_wire: u64,
    buffer: AlignedBuf,
    meter: Meter,
    settings: Settings,
    runtime: Handle,
}

impl Receiver {
    #[expect(
        clippy::too_many_arguments,
        reason = "each is another part of the transfer"
    )]
    pub(super) fn new(
        target: Target,
        source: GuestPath,
        lane: Option<HeldSlots>,
        network_reason: Option<String>,
        requests: mpsc::UnboundedSender<GetRequest>,
        events: mpsc::Receiver<Event>,
        meter: Meter,
        settings: Settings,
    ) -> Self {
        let slots = lane.as_ref().map_or(&[][..], |lane| lane.slots());
        Self {
            target: Some(target),
            source,
            given: slots.iter().copied().collect(),
            lane,
            network_reason,
            requests,
            events,
            pending: BTreeMap::new(),
            pending_data_bytes: 0,
            frontier: 0,
            tries: 0,
            root: RootHasher::new(),
            end: None,
            sha256: settings.sha256.then(FileHasher::new),
            leaf_retries: 0,
            bytes_on_wire: 0,
            // Grows to a window when the first one comes.
            buffer: AlignedBuf::new(0),
            meter,
            settings,
            runtime: Handle::current(),
        }
    }

    /// Receives until the file is published; gives back the slots that may still be in use.
    pub(super) fn run(mut self) -> (Result<Received, DownloadError>, Option<HeldSlots>) {
        let received = self.receive();
        (received, self.lane)
    }

    fn receive(&mut self) -> Result<Received, DownloadError> {
        let entry = match self.wait()? {
            Some(Response::Entry(entry)) => entry,
            Some(Response::Window(_) | Response::Data(_) | Response::End(_)) | None => {
                return Err(Misconduct::Message.into());
            }
        };
        let size = entry.size;
        if size > i64::MAX.cast_unsigned() {
            return Err(Misconduct::Size { size }.into());
        }
        self.meter.set_total(size);
        let target = self.open_target(entry)?;
        let mut target = if size >= THREAD_MIN_BYTES {
            Out::on_a_thread(target, PIECE_BYTES)
        } else {
            Out::here(target)
        };
        let root = loop {
            if let Some((end_size, root)) = &self.end
                && self.frontier == size
            {
                if *end_size != size || !self.pending.is_empty() {
                    return Err(Misconduct::Message.into());
                }
                break self.check_root(root)?;
            }
            let event = self.wait()?;
            self.accept(event, size)?;
            while let Some(first) = self.pending.first_entry()
                && *first.key() <= self.frontier
            {
                let pending = first.remove();
                self.take(pending, &mut target)?;
            }
        };
        let inline = size <= INLINE_MAX_BYTES as u64;
        // The last look: a cancelled download publishes nothing.
        if self.settings.stop.is_cancelled() {
            return Err(DownloadError::Cancelled);
        }
        let placed = target.publish()?;
        self.meter.finish();
        Ok(Received {
            placed,
            bytes: size,
            root,
            sha256: self.sha256.take().map(FileHasher::finish),
            inline,
            network_reason: self.network_reason.take(),
            leaf_retries: self.leaf_retries,
            bytes_on_wire: self.bytes_on_wire,
        })
    }

    fn open_target(&mut self, entry: GetEntry) -> Result<OpenTarget, DownloadError> {
        let target = self.target.take().ok_or(Misconduct::Message)?;
        let stop = self.settings.stop.clone();
        OpenTarget::open(target, &self.source, entry, self.settings.publish, stop)
    }

    fn check_root(&self, announced: &[u8]) -> Result<Digest, DownloadError> {
        let expected = self.root.clone().finish();
        if announced == expected.as_ref() {
            return Ok(expected);
        }
        let got = match Digest::try_from(announced) {
            Ok(got) => got.to_string(),
            Err(error) => error.to_string(),
        };
        Err(Misconduct::Root { expected, got }.into())
    }

    /// Checks what came and keeps it for its turn.
    fn accept(&mut self, message: Option<Response>, size: u64) -> Result<(), DownloadError> {
        match message {
            Some(Response::Window(window)) => self.window(&window, size),
            Some(Response::Data(data)) => self.data(data, size),
            Some(Response::End(end)) if self.end.is_none() => {
                self.end = Some((end.size, end.root_sha256));
                Ok(())
            }
            Some(Response::End(_) | Response::Entry(_)) | None => Err(Misconduct::Message.into()),
        }
    }

    fn window(&mut self, window: &Window, size: u64) -> Result<(), DownloadError> {
        let slot = window.slot;
        let length = window.length.into();
        let part = Part::announced(window.offset, length, &window.leaf_sha256, SLOT_BYTES)
            .map_err(Misconduct::from)?;
        if !self.given.remove(&slot) {
            return Err(Misconduct::Slot { slot }.into());
        }
        self.keep(part, Content::Slot(slot), size)
    }

    fn data(&mut self, data: Data, size: u64) -> Result<(), DownloadError> {
        let length = data.data.len() as u64;
        let part = Part::announced(data.offset, length, &data.leaf_sha256, NETWORK_CHUNK_BYTES)
            .map_err(Misconduct::from)?;
        if size > INLINE_MAX_BYTES as u64 {
            let reason = if data.lane_error.is_empty() {
                "the Space sent data over the connection".to_owned()
            } else {
                format!(
                    "the Space cannot use the lane: {}",
                    shown_text(&data.lane_error)
                )
            };
            self.leave_lane(&reason);
        }
        self.pending_data_bytes += data.data.len();
        self.bytes_on_wire += length;
        if self.pending_data_bytes > MAX_PENDING * NETWORK_CHUNK_BYTES {
            return Err(Misconduct::TooMany.into());
        }
        self.keep(part, Content::Message(data.data), size)
    }

    fn keep(&mut self, part: Part, content: Content, size: u64) -> Result<(), DownloadError> {
        let (offset, end) = (part.offset(), part.end());
        if end > size {
            return Err(Misconduct::from(CoverageError::PastEnd { end, size }).into());
        }
        if end < size && !end.is_multiple_of(LEAF_BYTES as u64) {
            return Err(Misconduct::from(CoverageError::PastEnd {
                end: size,
                size: end,
            })
            .into());
        }
        if offset < self.frontier || self.pending.contains_key(&offset) {
            return Err(Misconduct::from(CoverageError::Overlap { offset, end }).into());
        }
        if self.pending.len() >= MAX_PENDING {
            return Err(Misconduct::TooMany.into());
        }
        self.pending.insert(offset, Pending { part, content });
        Ok(())
    }

    /// Takes the part whose turn it is, or what is still missing of it: copy, check, write.
    fn take(&mut self, pending: Pending, target: &mut Out) -> Result<(), DownloadError> {
        let Pending { part, content } = pending;
        let (offset, end) = (part.offset(), part.end());
        if offset != self.frontier {
            return Err(Misconduct::from(CoverageError::Overlap { offset, end }).into());
        }
        match content {
            Content::Slot(slot) => self.take_window(&part, slot, target),
            Content::Message(data) => {
                self.pending_data_bytes -= data.len();
                if part.verify(&data).is_err() {
                    return self.ask_again(&part, None);
                }
                self.send(Request::Credit(Credit {
                    slot: None,
                    retire: false,
                    verified: end,
                }));
                self.account(&part, 0, &data);
                target.write(&data)
            }
        }
    }

    /// Takes a window piece by piece: each stays in the CPU's cache from the copy out of the lane
    /// to the copy to its place.
    fn take_window(
        &mut self,
        part: &Part,
        slot: u32,
        target: &mut Out,
    ) -> Result<(), DownloadError> {
        let mut buffer = std::mem::replace(&mut self.buffer, AlignedBuf::new(0));
        if buffer.is_empty() {
            buffer = AlignedBuf::new(PIECE_BYTES);
        }
        let taken = self.take_pieces(part, slot, &mut buffer, target);
        self.buffer = buffer;
        taken
    }

    fn take_pieces(
        &mut self,
        part: &Part,
        slot: u32,
        buffer: &mut AlignedBuf,
        target: &mut Out,
    ) -> Result<(), DownloadError> {
        for start in (0..part.bytes()).step_by(PIECE_BYTES) {
            let bytes = (part.bytes() - start).min(PIECE_BYTES);
            if !self.copy_out(slot, start, part, &mut buffer[..bytes]) {
                return self.ask_again(part, Some(slot));
            }
            if start + bytes == part.bytes() {
                // The copy is private: the Space may have its slot back before it is written.
                self.give(slot, part.end());
            }
            self.account(part, start / LEAF_BYTES, &buffer[..bytes]);
            target.write_piece(buffer, bytes)?;
        }
        Ok(())
    }

    /// Counts verified bytes, whose leaves begin with number `first` of `part`.
    fn account(&mut self, part: &Part, first: usize, copy: &[u8]) {
        self.tries = 0;
        if let Some(hasher) = &mut self.sha256 {
            hasher.update(copy);
        }
        let count = copy.len().div_ceil(LEAF_BYTES);
        for leaf in part.leaves().iter().skip(first).take(count) {
            self.root.push(leaf);
        }
        self.frontier += copy.len() as u64;
        self.meter.add(copy.len() as u64);
    }

    /// Copies a piece of a window to private memory and checks the copy.
    fn copy_out(&mut self, slot: u32, start: usize, part: &Part, copy: &mut [u8]) -> bool {
        let Some(lane) = &self.lane else {
            return false;
        };
        match lane.session().memory().read_slot(slot, start as u64, copy) {
            Ok(()) => part.verify_leaves(start / LEAF_BYTES, copy).is_ok(),
            Err(error) => {
                self.leave_lane(&format!("the host's side of the lane failed: {error}"));
                false
            }
        }
    }

    /// Asks once more for what is missing of `part`, which came in `slot` or as a message.
    fn ask_again(&mut self, part: &Part, slot: Option<u32>) -> Result<(), DownloadError> {
        self.tries += 1;
        self.leaf_retries += 1;
        if self.tries >= MAX_TRIES {
            if slot.is_none() {
                return Err(DownloadError::Corrupted {
                    offset: self.frontier,
                    tries: self.tries,
                });
            }
            self.leave_lane(&format!("a window arrived damaged {MAX_TRIES} times"));
            self.tries = 0;
        }
        if let Some(slot) = slot {
            self.given.insert(slot);
        }
        self.send(Request::Resend(Resend {
            offset: self.frontier,
            length: u32::try_from(part.end() - self.frontier).unwrap_or(u32::MAX),
            slot,
            network: self.network_reason.is_some(),
        }));
        Ok(())
    }

    /// Lets the Space fill `slot` again, or another transfer if one has none.
    fn give(&mut self, slot: u32, verified: u64) {
        let shared = self.lane.as_mut().is_some_and(|lane| lane.share(slot));
        if !shared {
            self.given.insert(slot);
        }
        self.send(Request::Credit(Credit {
            slot: Some(slot),
            retire: shared,
            verified,
        }));
    }

    fn leave_lane(&mut self, reason: &str) {
        if self.network_reason.is_some() {
            return;
        }
        if let Some(lane) = &self.lane {
            lane.session().set_broken(reason);
        }
        self.network_reason = Some(reason.to_owned());
    }

    fn send(&self, message: Request) {
        // When the call is over, the next event says why.
        let _ = self.requests.send(GetRequest {
            message: Some(message),
        });
    }

    fn wait(&mut self) -> Result<Option<Response>, DownloadError> {
        let timeout = self.settings.stall_timeout;
        let next = tokio::time::timeout(timeout, self.events.recv());
        match self
            .runtime
            .block_on(self.settings.stop.run_until_cancelled(next))
        {
            None => Err(DownloadError::Cancelled),
            Some(Err(_)) => Err(DownloadError::Stalled { timeout }),
            Some(Ok(Some(Event::Response(message)))) => Ok(message),
            Some(Ok(Some(Event::Failed(fault)))) => Err(fault.into()),
            Some(Ok(None)) => Err(Misconduct::EndOfStream.into()),
        }
    }
}
