//! The benchmark `rollout`: how soon a Space is there, and how soon it is gone.
//!
//! One Space after the other is made, stopped, started and deleted, each step timed until the
//! Space has run `true`; then several are made at once. Several kinds take turns.

use std::path::PathBuf;
use std::time::Instant;

use airlock::{Airlock, CancellationToken};
use airlock_model::ImageName;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::environment::{Binary, Host, LoadAverage, Software, load_average};
use crate::kinds::Kinds;
use crate::output::OutputDir;
use crate::result::Environment;
use crate::run::spaces::Spaces;
use crate::run::{BenchError, Event, image_binaries};

mod fleet;
mod measure;
mod report;
mod result;

use fleet::SpaceFleet;
use measure::{Measurements, measure};
pub use report::{comparison_table, table};
pub use result::{Failure, Metric, MetricResult, RolloutResult, SCHEMA, Sample};

/// Spaces made one after the other when nothing else is asked for.
pub const DEFAULT_ITERATIONS: u32 = 20;
/// How often several are made at once.
pub const DEFAULT_BATCHES: u32 = 3;
/// How many are made at once.
pub const DEFAULT_BATCH_SIZE: u32 = 8;
/// The most that are made at once; each is a process tree and memory of its own.
pub const MAX_BATCH_SIZE: u32 = 256;

/// Everything one run of `rollout` does with each kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutPlan {
    /// Spaces that are made, stopped, started and deleted one after the other.
    pub iterations: u32,
    /// How often several are made at once.
    pub batches: u32,
    /// How many at once.
    pub batch_size: u32,
}

impl Default for RolloutPlan {
    fn default() -> Self {
        Self {
            iterations: DEFAULT_ITERATIONS,
            batches: DEFAULT_BATCHES,
            batch_size: DEFAULT_BATCH_SIZE,
        }
    }
}

/// What to run.
#[derive(Debug, Clone)]
pub struct RolloutOptions {
    /// Image of the Spaces.
    pub image: ImageName,
    /// What they are.
    pub kinds: Kinds,
    /// What to measure.
    pub plan: RolloutPlan,
    /// Folder for the results, not there yet.
    pub out: PathBuf,
    /// When the run began.
    pub started_at: Timestamp,
    /// The programs that take part.
    pub software: Software,
}

/// What a run leaves.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutOutcome {
    /// What was saved: one for each kind, in their order.
    pub results: Vec<RolloutResult>,
    /// The rendered report; with several kinds the one that compares them.
    pub report: PathBuf,
    /// What went wrong without spoiling the figures.
    pub warnings: Vec<String>,
}

/// Measures and saves.
///
/// Every Space is deleted whatever happens, also when `cancel` fires; what was measured until then
/// is dropped, so that no half of a run is taken for one.
pub async fn run(
    airlock: &Airlock,
    options: RolloutOptions,
    events: impl Fn(Event) + Send + Sync,
    cancel: CancellationToken,
) -> Result<RolloutOutcome, BenchError> {
    let mut out = OutputDir::claim(&options.out)?;
    let clock = Instant::now();
    let host = Host::capture(airlock.home().root(), out.path());
    let load_before = load_average();
    let spaces = Spaces::new(airlock);
    let fleet = SpaceFleet::new(&spaces, &options.image, &events, &cancel);
    let kinds = options.kinds.as_slice();
    // Boxed, because the futures of the SDK in it are large.
    let measuring = Box::pin(measure(&fleet, kinds, &options.plan, &events, &cancel));
    let measured = measuring.await;
    let warnings = spaces.delete_all(&events).await;
    events(Event::Measured);
    let measured = measured.inspect_err(|_| {
        for warning in &warnings {
            events(Event::Note(warning.clone()));
        }
    })?;
    let around = Around {
        host,
        load_before,
        load_after: load_average(),
        duration_seconds: clock.elapsed().as_secs_f64(),
    };
    let saved = measured
        .into_iter()
        .map(|measured| {
            let binaries = image_binaries(airlock, &options.image, measured.facts.kind);
            derive(&options, &around, measured, &binaries)
        })
        .collect();
    let (results, report) = out.save_all(saved)?;
    Ok(RolloutOutcome {
        results,
        report,
        warnings,
    })
}

/// What all kinds of a run share.
struct Around {
    host: Host,
    load_before: LoadAverage,
    load_after: LoadAverage,
    duration_seconds: f64,
}

/// The raw samples as CSV and the saved form of what was measured with one kind.
fn derive(
    options: &RolloutOptions,
    around: &Around,
    measured: Measurements,
    binaries: &[Binary],
) -> (String, RolloutResult) {
    let csv = result::to_csv(&measured.samples);
    let result = RolloutResult {
        schema: SCHEMA.to_owned(),
        started_at: format!("{:.0}", options.started_at),
        duration_seconds: around.duration_seconds,
        command: command(options),
        plan: options.plan.clone(),
        environment: Environment {
            host: around.host.clone(),
            software: options.software.with(binaries),
            space: measured.facts,
            load_before: around.load_before,
            load_after: around.load_after,
        },
        metrics: result::metric_results(&measured.samples),
        failures: measured.failures,
    };
    (csv, result)
}

/// The command line of the same run, without what only concerns this machine.
fn command(options: &RolloutOptions) -> String {
    let RolloutPlan {
        iterations,
        batches,
        batch_size,
    } = options.plan;
    format!(
        "airlock bench run rollout --image {}{} --n {iterations} --batches {batches} \
         --batch-size {batch_size}",
        options.image,
        options.kinds.flags()
    )
}

#[cfg(test)]
mod tests {
    use airlock_model::Kind;

    use super::*;

    #[test]
    fn the_command_says_all_that_can_be_chosen() {
        let mut options = RolloutOptions {
            image: ImageName::new("tiny").unwrap(),
            kinds: Kinds::default(),
            plan: RolloutPlan::default(),
            out: "somewhere".into(),
            started_at: Timestamp::UNIX_EPOCH,
            software: Software::capture("0"),
        };
        let rest = "--n 20 --batches 3 --batch-size 8";
        assert_eq!(
            command(&options),
            format!("airlock bench run rollout --image tiny {rest}")
        );
        options.kinds = Kinds::new(vec![Kind::Vm, Kind::Container]).unwrap();
        assert_eq!(
            command(&options),
            format!("airlock bench run rollout --image tiny --kind vm --kind container {rest}")
        );
    }
}
