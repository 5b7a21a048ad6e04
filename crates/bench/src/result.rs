//! What a run saves: `result.json`.
//!
//! Its format is `docs/benchmarks/schema/file-transfer-2.json`. A field may be added under the
//! same number; a field that changes its meaning or goes away makes a new one. Files of an older
//! number stay what the schema of that number says: 1 knew VMs only and so a single formula for
//! [`Limits::sha256_mib_s`].

use std::collections::BTreeMap;

use airlock::SpaceInfo;
use airlock_model::{Accel, ImageName, Kind, Network, Route, Runtime};
use serde::{Deserialize, Serialize};

use crate::environment::{Host, LoadAverage, Software};
use crate::output::Saved;
use crate::plan::Plan;
use crate::report;
use crate::samples::{self, Direction, Latency, Sample};
use crate::stats::{Summary, mib_per_second};

mod limits;

pub use limits::{Formula, GuestRates, HostRates, Limits, Processors};

/// The value of `schema` in every file of this format.
pub const SCHEMA: &str = "airlock.bench.file-transfer/2";

/// One finished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// When it began, RFC 3339 in UTC.
    pub started_at: String,
    /// How long it took.
    pub duration_seconds: f64,
    /// The command that does the same again.
    pub command: String,
    /// What was measured.
    pub plan: Plan,
    /// Seed of the files' content.
    pub seed: u64,
    /// What the figures depend on.
    pub environment: Environment,
    /// What bounds a transfer in this Space, measured in this run.
    pub limits: Limits,
    /// One entry for each latency metric.
    pub latencies: Vec<LatencyResult>,
    /// The median of `exec_true` minus that of a bare `posix_spawn` in the Space, milliseconds.
    pub exec_minus_spawn_ms: Option<f64>,
    /// One entry for each size and direction.
    pub transfers: Vec<TransferResult>,
}

impl Saved for RunResult {
    const BENCHMARK: &'static str = "file-transfer";
    const SCHEMA: &'static str = SCHEMA;

    fn kind(&self) -> Kind {
        self.environment.space.kind
    }

    fn report(&self) -> String {
        report::markdown(self)
    }

    fn comparison(results: &[Self]) -> String {
        report::compare::markdown(results)
    }
}

/// Host, software, Space and load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// The machine.
    pub host: Host,
    /// The programs.
    pub software: Software,
    /// The Space.
    pub space: SpaceFacts,
    /// Load when the measurements began.
    pub load_before: LoadAverage,
    /// Load when they ended.
    pub load_after: LoadAverage,
}

/// The Space that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpaceFacts {
    /// Whether the run made it, and so deleted it.
    pub made_for_this_run: bool,
    /// Its image.
    pub image: ImageName,
    /// What it is.
    pub kind: Kind,
    /// Why it is that; absent where it was asked for.
    pub kind_reason: Option<String>,
    /// What runs it.
    pub runtime: Runtime,
    /// What stands between it and the host, and what does not.
    pub protection: Vec<String>,
    /// What executes its instructions; absent where unknown.
    pub accel: Option<Accel>,
    /// Why that was chosen.
    pub accel_reason: Option<String>,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Disk in GiB.
    pub disk_gb: u64,
    /// What it can reach.
    pub network: Network,
    /// From start to the first healthy answer.
    pub boot_ms: Option<u64>,
}

impl SpaceFacts {
    /// What is said of a Space, without its name and its place.
    pub fn of(info: &SpaceInfo, made_for_this_run: bool) -> Self {
        Self {
            made_for_this_run,
            image: info.image.clone(),
            kind: info.kind,
            kind_reason: info.kind_reason.clone(),
            runtime: info.runtime,
            protection: info.protection.clone(),
            accel: info.accel,
            accel_reason: info.accel_reason.clone(),
            cpus: info.cpus,
            memory_mb: info.memory_mb,
            disk_gb: info.disk_gb,
            network: info.network,
            boot_ms: info.boot_ms,
        }
    }
}

/// Statistics of one latency metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencyResult {
    /// Which.
    pub metric: Latency,
    /// Milliseconds.
    pub ms: Summary,
}

/// Statistics of one size and direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransferResult {
    /// Size of the file.
    pub size_bytes: u64,
    /// Which way.
    pub direction: Direction,
    /// Milliseconds.
    pub ms: Summary,
    /// The size divided by the median time.
    pub mib_s_p50: f64,
    /// The size divided by the time that 95 % stay within.
    pub mib_s_p95: f64,
    /// `mib_s_p50` divided by [`Limits::sha256_mib_s`]; absent when that is unknown.
    pub of_sha256_limit: Option<f64>,
    /// `mib_s_p50` divided by [`Limits::copy_mib_s`]; absent when that is unknown.
    pub of_copy_limit: Option<f64>,
    /// How many of the transfers took each route.
    pub routes: BTreeMap<String, u32>,
}

/// Derives the statistics of every latency metric that has samples.
pub fn latency_results(samples: &[Sample]) -> Vec<LatencyResult> {
    Latency::ALL
        .into_iter()
        .filter_map(|metric| {
            let ms = Summary::of(&samples::latencies(samples, metric))?;
            Some(LatencyResult { metric, ms })
        })
        .collect()
}

/// How much longer `true` takes through `exec` than by a bare `posix_spawn` in the Space, by their
/// medians; `None` where one of the two was not measured.
pub fn exec_minus_spawn_ms(latencies: &[LatencyResult], limits: &Limits) -> Option<f64> {
    let exec = latencies
        .iter()
        .find(|latency| latency.metric == Latency::ExecTrue)?;
    Some(exec.ms.p50 - limits.spawn_ms?.p50)
}

/// Derives the statistics of every size and direction that has samples.
pub fn transfer_results(samples: &[Sample], plan: &Plan, limits: &Limits) -> Vec<TransferResult> {
    let mut results = Vec::new();
    for file in plan.files.as_slice() {
        for direction in [Direction::Upload, Direction::Download] {
            let rows = samples::transfers(samples, file.size_bytes(), direction);
            let times: Vec<f64> = rows.iter().map(|(ms, _)| *ms).collect();
            let Some(ms) = Summary::of(&times) else {
                continue;
            };
            let mib_s_p50 = mib_per_second(file.size_bytes(), ms.p50);
            let fraction = |limit: f64| (limit > 0.0).then(|| mib_s_p50 / limit);
            results.push(TransferResult {
                size_bytes: file.size_bytes(),
                direction,
                ms,
                mib_s_p50,
                mib_s_p95: mib_per_second(file.size_bytes(), ms.p95),
                of_sha256_limit: fraction(limits.sha256_mib_s),
                of_copy_limit: fraction(limits.copy_mib_s),
                routes: count_routes(rows.iter().map(|(_, route)| *route)),
            });
        }
    }
    results
}

fn count_routes(routes: impl Iterator<Item = Route>) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for route in routes {
        *counts.entry(route.as_str().to_owned()).or_insert(0) += 1;
    }
    counts
}

#[cfg(test)]
pub(crate) mod tests;
