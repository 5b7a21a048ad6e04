//! Prints MiB/s of every SHA-256 implementation on this CPU, with one thread and with two.
//!
//! The best of many short passes counts, so that a busy machine still shows what the CPU can do.
//! As a static binary it also runs as `/init` of a VM, where these rates bound every transfer.

#![expect(clippy::print_stdout, reason = "the table is the output")]

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use airlock_digest::{LeafHasher, copy_rate, sha256_rate};

/// Sizes of leaves to compare, in KiB.
const LEAF_KIB: [usize; 4] = [64, 128, 256, 132];
const DURATION: Duration = Duration::from_millis(800);

fn main() {
    let start = Instant::now();
    let fastest = LeafHasher::fastest();
    println!("chosen in {:?}: {fastest:?}", start.elapsed());
    println!("MiB/s          threads  leaves of {LEAF_KIB:?} KiB");
    for hasher in LeafHasher::all_supported() {
        for threads in [1, 2] {
            let rates = LEAF_KIB.map(|kib| format!("{:>8.1}", rate(hasher, threads, kib)));
            println!("{:<14} {threads:>7} {}", hasher.name(), rates.join(""));
        }
    }
    for leaves in 1..=17 {
        println!(
            "chosen, {leaves} leaves {:>15.1}",
            best(fastest, leaves * 64, 64)
        );
    }
    println!("chosen, 4 MiB    {:>15.1}", sha256_rate(DURATION));
    println!("copy, 4 MiB      {:>15.1}", copy_rate(DURATION));
}

/// MiB/s of all threads together, each hashing its own window.
fn rate(hasher: LeafHasher, threads: usize, leaf_kib: usize) -> f64 {
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| best(hasher, 16 * leaf_kib, leaf_kib)))
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or(f64::NAN))
            .sum()
    })
}

/// MiB/s of the fastest pass over `kib` of data.
fn best(hasher: LeafHasher, kib: usize, leaf_kib: usize) -> f64 {
    let data = vec![0x5a; kib << 10];
    let mut digests = Vec::new();
    let mut least = Duration::MAX;
    let start = Instant::now();
    while start.elapsed() < DURATION {
        digests.clear();
        let pass = Instant::now();
        hasher.hash_leaves_of(leaf_kib << 10, black_box(&data), &mut digests);
        least = least.min(pass.elapsed());
    }
    black_box(&digests);
    kib as f64 / 1024.0 / least.as_secs_f64()
}
