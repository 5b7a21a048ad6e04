//! Prints MiB/s of every SHA-256 implementation on this CPU, with one thread and with two.

#![expect(clippy::print_stdout, reason = "the table is the output")]

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use airlock_digest::{LeafHasher, copy_rate, sha256_rate};

const LEAF_SIZES: [usize; 4] = [64 << 10, 128 << 10, 256 << 10, (128 << 10) + 4096];
const DURATION: Duration = Duration::from_millis(700);

fn main() {
    let start = Instant::now();
    let fastest = LeafHasher::fastest();
    println!("chosen in {:?}: {fastest:?}", start.elapsed());
    println!(
        "{:<10} {:>7} | MiB/s, leaves of {LEAF_SIZES:?} bytes",
        "", "threads"
    );
    for hasher in LeafHasher::all_supported() {
        for threads in [1, 2] {
            let rates =
                LEAF_SIZES.map(|leaf_bytes| format!("{:>8.1}", rate(hasher, threads, leaf_bytes)));
            println!("{:<10} {threads:>7} | {}", hasher.name(), rates.join(" "));
        }
    }
    println!("{:<10} {:>7} | {:>8.1}", "chosen", 1, sha256_rate(DURATION));
    println!("{:<10} {:>7} | {:>8.1}", "copy", 1, copy_rate(DURATION));
}

/// MiB/s of all threads together, each hashing its own 4 MiB again and again.
fn rate(hasher: LeafHasher, threads: usize, leaf_bytes: usize) -> f64 {
    let begin = Barrier::new(threads);
    let work = || {
        let data = vec![0x5a; 32 * leaf_bytes];
        let mut digests = Vec::new();
        let mut bytes = 0;
        begin.wait();
        let start = Instant::now();
        while start.elapsed() < DURATION {
            digests.clear();
            hasher.hash_leaves_of(leaf_bytes, black_box(&data[..data.len() / 4]), &mut digests);
            bytes += data.len() / 4;
        }
        f64::from(u32::try_from(bytes >> 10).unwrap_or(u32::MAX))
            / 1024.0
            / start.elapsed().as_secs_f64()
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or(f64::NAN))
            .sum()
    })
}
