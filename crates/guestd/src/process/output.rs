//! What a command printed: kept in a ring, read by any number of streams.
//!
//! Nothing that a stream has not taken yet is ever overwritten while that stream keeps up: when
//! the ring is full of unread output the command waits, as it would on a pipe. There are two
//! limits to that patience. A stream that takes nothing for [`STALL`] while another one is through
//! is cut off, with an error that counts what it missed. And output that nobody reads any more is
//! held for [`REATTACH`], for a client that lost its connection, and then gives way to newer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use airlock_digest::FileHasher;
use airlock_wire::cua::v1::ProcessEnd;
use airlock_wire::{Fault, FaultKind};
use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long one stream may stand still while another one is through.
const STALL: Duration = Duration::from_secs(5);
/// How long unread output waits for a client that lost its connection.
const REATTACH: Duration = Duration::from_secs(30);
/// What a piece costs besides its bytes, so that many small ones stay bounded too.
const PIECE_COST: usize = 128;

/// Where output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Stdout,
    Stderr,
    Pty,
}

/// A piece of output.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// Bytes of all sources before it.
    pub(super) offset: u64,
    pub(super) source: Source,
    pub(super) bytes: Bytes,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    fn cost(&self) -> usize {
        self.bytes.len() + PIECE_COST
    }
}

/// What a stream gets next.
#[derive(Debug, Clone)]
pub(super) enum Event {
    Data(Piece),
    End(Box<ProcessEnd>),
}

/// The output of one command.
#[derive(Debug)]
pub(super) struct Output {
    ring: Mutex<Ring>,
    /// Something was added.
    added: Notify,
    /// Something was taken.
    taken: Notify,
}

#[derive(Debug)]
struct Ring {
    pieces: VecDeque<Piece>,
    /// Number of the first piece kept; pieces are numbered from the start of the command.
    first: u64,
    cost: usize,
    cap: usize,
    start_offset: u64,
    end_offset: u64,
    end: Option<ProcessEnd>,
    readers: BTreeMap<u64, ReaderState>,
    next_reader: u64,
    /// What the last reader that left had not taken, and until when it is held.
    held: Option<(u64, Instant)>,
    hasher: Option<FileHasher>,
}

#[derive(Debug)]
struct ReaderState {
    /// Number of the piece it takes next.
    next: u64,
    moved: Instant,
    /// Bytes it missed, once it was cut off.
    missed: Option<u64>,
}

/// Numbers about the output.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extent {
    pub(super) start_offset: u64,
    pub(super) end_offset: u64,
    pub(super) readers: usize,
}

impl Output {
    /// A ring of at most `cap` bytes; hashes everything where `hashed`.
    pub(super) fn new(cap: usize, hashed: bool) -> Self {
        let ring = Ring {
            pieces: VecDeque::new(),
            first: 0,
            cost: 0,
            cap,
            start_offset: 0,
            end_offset: 0,
            end: None,
            readers: BTreeMap::new(),
            next_reader: 0,
            held: None,
            hasher: hashed.then(FileHasher::new),
        };
        Self {
            ring: Mutex::new(ring),
            added: Notify::new(),
            taken: Notify::new(),
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn extent(&self) -> Extent {
        let ring = self.ring();
        Extent {
            start_offset: ring.start_offset,
            end_offset: ring.end_offset,
            readers: ring.readers.len(),
        }
    }

    /// How the command ended, once it has.
    pub(super) fn end(&self) -> Option<ProcessEnd> {
        self.ring().end.clone()
    }

    /// SHA-256 of everything, where it was wanted.
    pub(super) fn sha256(&self) -> Option<String> {
        let hasher = self.ring().hasher.clone()?;
        Some(hasher.finish().to_string())
    }

    /// The last pieces, at least `bytes` of them where there are so many.
    pub(super) fn tail(&self, bytes: usize) -> Vec<Piece> {
        let ring = self.ring();
        let from = ring.end_offset.saturating_sub(bytes as u64);
        ring.pieces
            .iter()
            .filter(|piece| piece.end() > from)
            .cloned()
            .collect()
    }

    /// Appends a piece; waits while the ring is full of what a stream has yet to take.
    ///
    /// After the end everything is dropped: a job in the background may print on, and must
    /// neither block nor be heard.
    pub(super) async fn push(&self, source: Source, bytes: Bytes) {
        loop {
            let taken = self.taken.notified();
            let retry_at = {
                let mut ring = self.ring();
                if ring.end.is_some() {
                    return;
                }
                match ring.make_room(bytes.len() + PIECE_COST, Instant::now()) {
                    Ok(()) => {
                        ring.append(source, bytes);
                        break;
                    }
                    Err(retry_at) => retry_at,
                }
            };
            match retry_at {
                Some(at) => {
                    // Either way the rules are looked at again.
                    let _ = tokio::time::timeout_at(at, taken).await;
                }
                None => taken.await,
            }
        }
        self.added.notify_waiters();
    }

    /// Marks the end. Streams get it once they have taken everything.
    pub(super) fn finish(&self, end: ProcessEnd) {
        self.ring().end = Some(end);
        self.added.notify_waiters();
        self.taken.notify_waiters();
    }

    /// Forgets output, all but the last `keep` bytes, unless somebody reads it.
    pub(super) fn trim(&self, keep: usize) {
        let mut ring = self.ring();
        if ring.readers.is_empty() {
            while ring.cost > keep && ring.evict() {}
            ring.pieces.shrink_to_fit();
        }
    }

    /// A stream of everything from byte `from` on, or of all that is kept when that is later.
    pub(super) fn attach(self: &Arc<Self>, from: u64) -> Reader {
        let mut ring = self.ring();
        let id = ring.next_reader;
        ring.next_reader += 1;
        let skipped = ring.pieces.partition_point(|piece| piece.end() <= from);
        let state = ReaderState {
            next: ring.first + skipped as u64,
            moved: Instant::now(),
            missed: None,
        };
        ring.readers.insert(id, state);
        ring.held = None;
        drop(ring);
        Reader {
            output: Arc::clone(self),
            id,
            from,
        }
    }
}

impl Ring {
    fn append(&mut self, source: Source, bytes: Bytes) {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&bytes);
        }
        let piece = Piece {
            offset: self.end_offset,
            source,
            bytes,
        };
        self.end_offset = piece.end();
        self.cost += piece.cost();
        self.pieces.push_back(piece);
    }

    /// Drops the oldest piece.
    fn evict(&mut self) -> bool {
        let Some(piece) = self.pieces.pop_front() else {
            return false;
        };
        self.first += 1;
        self.cost -= piece.cost();
        self.start_offset = piece.end();
        true
    }

    /// Makes room for a piece, or says when to look again (nothing: when something is taken).
    fn make_room(&mut self, cost: usize, now: Instant) -> Result<(), Option<Instant>> {
        while self.cost + cost > self.cap && !self.pieces.is_empty() {
            let (unread, retry_at) = self.oldest_unread(now);
            if unread.is_some_and(|unread| self.first >= unread) {
                if self.cut_off_stalled(now) {
                    continue;
                }
                return Err(retry_at);
            }
            self.evict();
        }
        Ok(())
    }

    /// Number of the oldest piece that must stay, and when that may change by itself.
    fn oldest_unread(&self, now: Instant) -> (Option<u64>, Option<Instant>) {
        let live = || {
            self.readers
                .values()
                .filter(|reader| reader.missed.is_none())
        };
        if let Some(slowest) = live().min_by_key(|reader| reader.next) {
            let retry_at = (live().count() > 1).then(|| slowest.moved.max(now - STALL) + STALL);
            return (Some(slowest.next), retry_at);
        }
        match self.held {
            Some((piece, until)) if until > now => (Some(piece), Some(until)),
            Some(_) | None => (None, None),
        }
    }

    /// Cuts off a stream that stands still while another one has taken everything.
    fn cut_off_stalled(&mut self, now: Instant) -> bool {
        let last = self.first + self.pieces.len() as u64;
        let through = |reader: &ReaderState| reader.missed.is_none() && reader.next == last;
        if !self.readers.values().any(through) {
            return false;
        }
        let (first, end) = (self.first, self.end_offset);
        let stalled = self.readers.values_mut().find(|reader| {
            reader.missed.is_none()
                && reader.next <= first
                && now.duration_since(reader.moved) >= STALL
        });
        let Some(reader) = stalled else { return false };
        let offset = self.pieces.front().map_or(end, |piece| piece.offset);
        reader.missed = Some(end - offset);
        true
    }
}

/// One stream's place in the output.
#[derive(Debug)]
pub(super) struct Reader {
    output: Arc<Output>,
    id: u64,
    from: u64,
}

impl Reader {
    /// The next piece, or the end. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> Result<Event, Fault> {
        loop {
            let added = self.output.added.notified();
            if let Some(event) = self.take()? {
                self.output.taken.notify_waiters();
                return Ok(event);
            }
            added.await;
        }
    }

    fn take(&self) -> Result<Option<Event>, Fault> {
        let mut ring = self.output.ring();
        let Ring {
            pieces,
            first,
            end,
            readers,
            ..
        } = &mut *ring;
        let Some(state) = readers.get_mut(&self.id) else {
            unreachable!("a reader stays registered until it is dropped");
        };
        if let Some(missed) = state.missed {
            let message = format!(
                "this stream took nothing for {} s while another one went on; it misses {missed} \
                 bytes or more",
                STALL.as_secs()
            );
            return Err(Fault::new(FaultKind::LimitExceeded, message));
        }
        state.next = state.next.max(*first);
        let Some(piece) = pieces.get((state.next - *first) as usize) else {
            return Ok(end.clone().map(|end| Event::End(Box::new(end))));
        };
        state.next += 1;
        state.moved = Instant::now();
        let mut piece = piece.clone();
        let skip = self
            .from
            .saturating_sub(piece.offset)
            .min(piece.bytes.len() as u64);
        piece.offset += skip;
        let _ = piece.bytes.split_to(skip as usize);
        Ok(Some(Event::Data(piece)))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut ring = self.output.ring();
        let state = ring.readers.remove(&self.id);
        if let Some(state) = state
            && ring.readers.is_empty()
            && state.missed.is_none()
        {
            ring.held = Some((state.next, Instant::now() + REATTACH));
        }
        drop(ring);
        self.output.taken.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
