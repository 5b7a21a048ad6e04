//! What bounds a transfer in this Space, measured here and now.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use airlock_digest::{LeafHasher, copy_rate, sha256_rate};
use airlock_wire::lane_v1::{MeasureRequest, MeasureResponse};
use airlock_wire::{Fault, FaultKind};

/// The longest one measurement runs.
const MAX_DURATION: Duration = Duration::from_secs(5);
/// The most processes that are started.
const MAX_SPAWNS: u32 = 10_000;

/// Measures; blocks its thread meanwhile.
pub(crate) fn run(request: MeasureRequest, threads: usize) -> Result<MeasureResponse, Fault> {
    let duration = Duration::from_millis(request.milliseconds.into());
    if duration > MAX_DURATION || request.spawns > MAX_SPAWNS {
        return Err(Fault::new(
            FaultKind::LimitExceeded,
            format!("at most {MAX_DURATION:?} and {MAX_SPAWNS} processes"),
        ));
    }
    let (mut one, mut copy, mut all) = (0.0, 0.0, 0.0);
    if !duration.is_zero() {
        one = sha256_rate(duration);
        all = thread::scope(|scope| {
            let hashing: Vec<_> = (0..threads)
                .map(|_| scope.spawn(|| sha256_rate(duration)))
                .collect();
            hashing
                .into_iter()
                .filter_map(|thread| thread.join().ok())
                .sum()
        });
        copy = copy_rate(duration);
    }
    Ok(MeasureResponse {
        sha256_mib_s: one,
        sha256_name: LeafHasher::fastest().name().to_owned(),
        copy_mib_s: copy,
        spawn_us: spawn_times(request.spawns)?,
        cpus: u32::try_from(threads).unwrap_or(u32::MAX),
        sha256_all_mib_s: all,
    })
}

fn spawn_times(count: u32) -> Result<Vec<f64>, Fault> {
    (0..count)
        .map(|_| {
            let start = Instant::now();
            let status = Command::new("true").status();
            let elapsed = start.elapsed();
            match status {
                Ok(status) if status.success() => Ok(elapsed.as_secs_f64() * 1e6),
                Ok(status) => Err(Fault::new(FaultKind::Internal, format!("true: {status}"))),
                Err(error) => Err(Fault::from_io("true", &error)),
            }
        })
        .collect()
}
