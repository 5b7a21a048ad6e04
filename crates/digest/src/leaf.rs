//! Hashing the leaves of a stretch of a file the fastest way this CPU has.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use airlock_model::size::LEAF_BYTES;

use crate::digest::Digest;
use crate::kernel::{Kernel, MAX_STREAMS};

/// Bytes in each stream of a measurement: long enough to drown the call, short enough that all
/// kernels together take a few milliseconds even in an emulated VM.
const PROBE_BYTES: usize = 4 * 1024;
/// Passes of a measurement. The first ones pay for cold caches and, under emulation, for the
/// translation of the kernel; the fastest counts.
const PROBE_PASSES: usize = 4;

/// Hashes leaves with a chosen implementation, several side by side where that is faster.
///
/// Which one wins differs by an order of magnitude between CPUs (SHA instructions, vectors under
/// emulation, neither), and CPUID does not tell it, so [`LeafHasher::fastest`] measures.
#[derive(Debug, Clone, Copy)]
pub struct LeafHasher {
    /// Fastest per byte when all its streams are busy.
    bulk: Kernel,
    /// What to use next when `index + 1` leaves remain.
    remainder: [Kernel; MAX_STREAMS],
}

impl LeafHasher {
    /// The fastest way on this CPU, measured once in the life of the process.
    #[must_use]
    pub fn fastest() -> Self {
        static FASTEST: OnceLock<LeafHasher> = OnceLock::new();
        *FASTEST.get_or_init(|| {
            let measured: Vec<_> = Kernel::all_supported()
                .into_iter()
                .map(|kernel| (kernel, pass_duration(kernel)))
                .collect();
            Self::plan(&measured)
        })
    }

    /// Every implementation that runs on this CPU, each by itself; for tests and benchmarks.
    #[must_use]
    pub fn all_supported() -> Vec<Self> {
        Kernel::all_supported()
            .into_iter()
            .map(|kernel| Self {
                bulk: kernel,
                remainder: [kernel; _],
            })
            .collect()
    }

    /// The name of the implementation that hashes whole groups of leaves.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.bulk.name()
    }

    /// How many leaves it hashes side by side; fewer at a time leave some of its speed unused.
    #[must_use]
    pub const fn streams(&self) -> usize {
        self.bulk.streams()
    }

    /// Appends the digest of each leaf of `data` to `out`.
    ///
    /// `data` begins at the start of a leaf; its last leaf may be short, and no data has no leaf.
    pub fn hash_leaves(&self, data: &[u8], out: &mut Vec<Digest>) {
        self.hash_leaves_of(LEAF_BYTES, data, out);
    }

    /// [`hash_leaves`](Self::hash_leaves) for leaves of another size, which benchmarks compare.
    #[doc(hidden)]
    pub fn hash_leaves_of(&self, leaf_bytes: usize, data: &[u8], out: &mut Vec<Digest>) {
        out.reserve(data.len().div_ceil(leaf_bytes));
        let mut rest = data;
        while !rest.is_empty() {
            let kernel = self.kernel_for(rest.len().div_ceil(leaf_bytes));
            let (now, later) = rest.split_at(rest.len().min(kernel.streams() * leaf_bytes));
            let mut leaves: [&[u8]; MAX_STREAMS] = [&[]; _];
            let mut count = 0;
            for (place, leaf) in leaves.iter_mut().zip(now.chunks(leaf_bytes)) {
                *place = leaf;
                count += 1;
            }
            kernel.hash(&leaves[..count], out);
            rest = later;
        }
    }

    /// What hashes the next leaves when `leaves` remain, at least one.
    fn kernel_for(&self, leaves: usize) -> Kernel {
        self.remainder.get(leaves - 1).copied().unwrap_or(self.bulk)
    }

    /// Chooses from kernels and the time that each takes for one pass, however many of its streams are busy.
    fn plan(measured: &[(Kernel, Duration)]) -> Self {
        let per_stream =
            |&(kernel, pass): &(Kernel, Duration)| pass.as_secs_f64() / kernel.streams() as f64;
        let (bulk, _) = *measured
            .iter()
            .min_by(|a, b| per_stream(a).total_cmp(&per_stream(b)))
            .unwrap_or(&(Kernel::Sha2, Duration::ZERO));

        // The least time for each count of leaves, from the least times of smaller counts.
        let mut remainder = [bulk; MAX_STREAMS];
        let mut least = [Duration::ZERO; MAX_STREAMS + 1];
        for leaves in 1..=MAX_STREAMS {
            let total = |(kernel, pass): &(Kernel, Duration)| {
                *pass + least[leaves.saturating_sub(kernel.streams())]
            };
            if let Some(best) = measured.iter().min_by_key(|candidate| total(candidate)) {
                remainder[leaves - 1] = best.0;
                least[leaves] = total(best);
            }
        }
        Self { bulk, remainder }
    }
}

/// How long one pass over a group of short messages takes.
fn pass_duration(kernel: Kernel) -> Duration {
    let data = vec![0x5a; kernel.streams() * PROBE_BYTES];
    let messages: Vec<&[u8]> = data.chunks(PROBE_BYTES).collect();
    let mut digests = Vec::with_capacity(messages.len());
    let mut least = Duration::MAX;
    for _ in 0..PROBE_PASSES {
        digests.clear();
        let start = Instant::now();
        kernel.hash(&messages, &mut digests);
        least = least.min(start.elapsed());
    }
    std::hint::black_box(&digests);
    least
}
