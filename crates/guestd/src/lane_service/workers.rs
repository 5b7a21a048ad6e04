//! Threads that hash and copy, one for each vCPU.
//!
//! Plain threads with a buffer each that lives as long as the thread: in an emulated VM the first
//! touch of a page costs 19 µs and a hand-over between threads 64 µs, so memory is touched once
//! and work comes in large pieces. What they may hold together is bounded, whatever the number
//! and the size of the files.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use airlock_digest::LeafHasher;
use airlock_lane::AlignedBuf;
use airlock_model::size::{LEAF_BYTES, MIB, NETWORK_CHUNK_BYTES, SLOT_BYTES};

use super::sink::DiskIo;

/// The most bytes that all buffers take together.
const BUFFERS_BYTES: usize = 32 * MIB as usize;
/// The most threads: more would leave each a buffer too small for large requests.
const MAX_THREADS: usize = 16;
/// The least piece of work: eight leaves, which the widest hash of an emulated CPU takes side by
/// side.
const GRAIN_BYTES: usize = 8 * LEAF_BYTES;
/// A thread without work for so long ends and gives its buffer back.
const IDLE: Duration = Duration::from_secs(20);

/// Work on a stretch of bytes that several threads may share.
pub(crate) trait Job: Send + Sync {
    /// Bytes of work.
    fn bytes(&self) -> usize;
    /// Whether several threads may share it; otherwise it is at most one data message long.
    fn is_divisible(&self) -> bool;
    /// Does the part `range` of it, at most as long as `buffer`, which holds anything.
    fn run(&self, range: Range<usize>, buffer: &mut AlignedBuf);
}

/// The threads and their queue.
#[derive(Clone)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    threads: usize,
    buffer_bytes: usize,
    /// The most of a divisible job that a thread takes at once.
    piece_bytes: usize,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Started>,
    /// Bytes of work that no thread has taken yet.
    backlog: usize,
    running: usize,
    idle: usize,
}

struct Started {
    job: Arc<dyn Job>,
    /// Where the part that no thread has taken starts.
    next: usize,
}

impl Workers {
    /// As many threads as there are CPUs; none runs before there is work.
    pub(crate) fn new(io: DiskIo) -> Self {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let threads = cpus.min(MAX_THREADS);
        let buffer_bytes = (BUFFERS_BYTES / threads).clamp(NETWORK_CHUNK_BYTES, SLOT_BYTES);
        let (buffer_bytes, piece_bytes) = match io {
            // Every request crosses the hypervisor: few large ones.
            DiskIo::Direct => (buffer_bytes, buffer_bytes),
            // Everything is memory here: a piece stays in the CPU's cache from its copy out of
            // the lane over the hash to the copy to its place.
            DiskIo::Cached => (NETWORK_CHUNK_BYTES, NETWORK_CHUNK_BYTES),
        };
        Self {
            shared: Arc::new(Shared {
                queue: Mutex::default(),
                wake: Condvar::new(),
                threads,
                buffer_bytes,
                piece_bytes,
            }),
        }
    }

    /// How many threads there are at most.
    pub(crate) fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Starts the threads, so that the first transfer finds their buffers touched.
    pub(crate) fn warm(&self) {
        let mut queue = self.shared.lock();
        while queue.running < self.shared.threads {
            // Work that comes later reports the error.
            if self.shared.start_thread(&mut queue).is_err() {
                break;
            }
        }
    }

    /// Queues work; fails when no thread could be started to do it.
    pub(crate) fn submit(&self, job: Arc<dyn Job>) -> io::Result<()> {
        let shared = &self.shared;
        let bytes = job.bytes();
        let pieces = bytes.div_ceil(GRAIN_BYTES);
        let mut queue = shared.lock();
        let wanted = pieces.saturating_sub(queue.idle);
        for _ in 0..wanted.min(shared.threads - queue.running) {
            if let Err(error) = shared.start_thread(&mut queue)
                && queue.running == 0
            {
                return Err(error);
            }
        }
        queue.jobs.push_back(Started { job, next: 0 });
        queue.backlog += bytes;
        let wake_all = pieces > 1;
        drop(queue);
        if wake_all {
            shared.wake.notify_all();
        } else {
            shared.wake.notify_one();
        }
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // The queue is whole at every unlock, so a panic of another thread spoils nothing.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_thread(self: &Arc<Self>, queue: &mut Queue) -> io::Result<()> {
        let shared = Arc::clone(self);
        thread::Builder::new()
            .name("lane-worker".into())
            .stack_size(256 * 1024)
            .spawn(move || shared.work())?;
        queue.running += 1;
        Ok(())
    }

    fn work(&self) {
        let mut buffer = AlignedBuf::new(self.buffer_bytes);
        // The first use measures.
        let _ = LeafHasher::fastest();
        while let Some((job, range)) = self.next() {
            job.run(range, &mut buffer);
        }
    }

    /// The next piece of work; nothing when the thread shall end.
    fn next(&self) -> Option<(Arc<dyn Job>, Range<usize>)> {
        let mut queue = self.lock();
        loop {
            if let Some(piece) = self.take(&mut queue) {
                return Some(piece);
            }
            queue.idle += 1;
            let (woken, timeout) = self
                .wake
                .wait_timeout(queue, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.idle -= 1;
            if timeout.timed_out() && queue.jobs.is_empty() {
                queue.running -= 1;
                return None;
            }
        }
    }

    fn take(&self, queue: &mut Queue) -> Option<(Arc<dyn Job>, Range<usize>)> {
        // With much work ahead every thread takes a whole buffer; near the end, and for a small
        // file, pieces are small so that all threads are busy until the last one.
        let share = queue.backlog / (2 * self.threads);
        let most = share.next_multiple_of(GRAIN_BYTES).min(self.piece_bytes);
        let first = queue.jobs.front_mut()?;
        let most = if first.job.is_divisible() {
            most.max(GRAIN_BYTES)
        } else {
            self.buffer_bytes
        };
        let total = first.job.bytes();
        let range = first.next..total.min(first.next + most);
        first.next = range.end;
        let job = Arc::clone(&first.job);
        queue.backlog -= range.len();
        if range.end == total {
            queue.jobs.pop_front();
        }
        Some((job, range))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Count {
        bytes: usize,
        ranges: mpsc::Sender<Range<usize>>,
    }

    impl Job for Count {
        fn bytes(&self) -> usize {
            self.bytes
        }

        fn is_divisible(&self) -> bool {
            true
        }

        fn run(&self, range: Range<usize>, buffer: &mut AlignedBuf) {
            assert!(range.len() <= buffer.len());
            self.ranges.send(range).unwrap();
        }
    }

    #[test]
    fn every_byte_of_every_job_is_done_once() {
        for (io, bytes) in [DiskIo::Direct, DiskIo::Cached].into_iter().flat_map(|io| {
            [1, GRAIN_BYTES, GRAIN_BYTES + 1, 3 * SLOT_BYTES + 5].map(|bytes| (io, bytes))
        }) {
            let workers = Workers::new(io);
            let (ranges, done) = mpsc::channel();
            workers.submit(Arc::new(Count { bytes, ranges })).unwrap();
            let mut ranges: Vec<_> = done.iter().collect();
            ranges.sort_by_key(|range| range.start);
            assert_eq!(ranges.first().unwrap().start, 0);
            assert_eq!(ranges.last().unwrap().end, bytes);
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }
}
