//! The rates that limit every transfer on this machine, for benchmarks to print beside their own.

use std::hint::black_box;
use std::time::{Duration, Instant};

use airlock_model::size::{MIB, SLOT_BYTES};

use crate::leaf::LeafHasher;

/// MiB/s that one thread hashes leaves with, measured over `duration` on warm memory.
#[must_use]
pub fn sha256_rate(duration: Duration) -> f64 {
    let hasher = LeafHasher::fastest();
    let data = vec![0x5a; SLOT_BYTES];
    let mut digests = Vec::new();
    fastest_pass(duration, || {
        digests.clear();
        hasher.hash_leaves(black_box(&data), &mut digests);
        black_box(&digests);
    })
}

/// MiB/s that one thread copies memory with, measured over `duration` on a warm slot.
#[must_use]
pub fn copy_rate(duration: Duration) -> f64 {
    let from = vec![0x5a; SLOT_BYTES];
    let mut to = vec![0; SLOT_BYTES];
    fastest_pass(duration, || {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
    })
}

/// MiB/s of the fastest pass over one slot within `duration`; slower ones shared the CPU.
fn fastest_pass(duration: Duration, mut pass: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut least = Duration::MAX;
    while least == Duration::MAX || start.elapsed() < duration {
        let begin = Instant::now();
        pass();
        least = least.min(begin.elapsed());
    }
    SLOT_BYTES as f64 / MIB as f64 / least.as_secs_f64()
}
