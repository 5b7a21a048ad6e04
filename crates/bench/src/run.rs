//! One run from the making of the Spaces to their deletion.

use std::io;
use std::path::PathBuf;

use airlock::{Airlock, CancellationToken, Error, SpaceInfo};
use airlock_model::{ImageName, Kind, SpaceName, SpaceSpec};
use jiff::Timestamp;

use crate::environment::{Binary, Host, LoadAverage, Software, load_average};
use crate::kinds::Kinds;
use crate::output::{OutputDir, OutputError};
use crate::plan::Plan;
use crate::result::{HostRates, RunResult};
use crate::samples::to_csv;
use crate::target::{SpaceTarget, TargetError, host_rates};

mod derive;
mod measure;
pub(crate) mod spaces;

use derive::derive;
pub(crate) use derive::image_binaries;
use measure::{Measurements, Subject, measure};
pub(crate) use measure::{blocking, cancellable};
use spaces::Spaces;

/// Seed of the content. Fixed, so that two runs send the same bytes.
const SEED: u64 = 0x0061_6972_6c6f_636b;

/// What to run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The running Space to measure; otherwise some are made and deleted.
    pub space: Option<SpaceName>,
    /// Image of the Spaces to make.
    pub image: ImageName,
    /// One Space of each kind is made.
    pub kinds: Kinds,
    /// What to measure.
    pub plan: Plan,
    /// Folder for the results, not there yet.
    pub out: PathBuf,
    /// When the run began.
    pub started_at: Timestamp,
    /// The programs that take part.
    pub software: Software,
}

/// What happens during a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Something a person wants to read.
    Note(String),
    /// The Space is being made or deleted.
    Preparing(String),
    /// The next step begins.
    Step {
        /// How many are done.
        done: u64,
        /// How many there are.
        total: u64,
        /// What the next one is.
        label: String,
    },
    /// All measurements are taken.
    Measured,
}

/// What a run leaves.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// What was saved: one for each kind, in their order.
    pub results: Vec<RunResult>,
    /// The rendered report; with several kinds the one that compares them.
    pub report: PathBuf,
    /// What went wrong without spoiling the figures.
    pub warnings: Vec<String>,
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The SDK says why.
    #[error("cannot {step}")]
    Sdk {
        /// What was tried.
        step: String,
        /// Why not.
        source: Error,
    },
    /// A command in the Space ran and failed.
    #[error("cannot {step}: `{command}` ended with {code}")]
    Command {
        /// What was tried.
        step: String,
        /// The command.
        command: String,
        /// Its exit code, as a shell gives it.
        code: i32,
    },
    /// The benchmark's own files on the host.
    #[error("cannot use the benchmark's own files")]
    Scratch {
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// What came back is not what was sent.
    #[error("the file of {size_bytes} bytes came back {difference}")]
    Different {
        /// Size of the file.
        size_bytes: u64,
        /// In which way.
        difference: String,
    },
    /// The results could not be saved.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The caller gave up.
    #[error("cancelled")]
    Cancelled,
}

impl BenchError {
    pub(crate) fn sdk(step: impl Into<String>) -> impl FnOnce(Error) -> Self {
        let step = step.into();
        move |source| Self::Sdk { step, source }
    }

    pub(crate) fn target(step: impl Into<String>) -> impl FnOnce(TargetError) -> Self {
        let step = step.into();
        move |error| match error {
            TargetError::Sdk(source) => Self::Sdk { step, source },
            TargetError::Command { command, code } => Self::Command {
                step,
                command,
                code,
            },
        }
    }
}

/// Makes a Space of each kind (unless one is named), measures them in turn, deletes what it made,
/// and saves.
///
/// The Spaces that were made are deleted whatever happens, also when `cancel` fires; what was
/// measured until then is dropped, so that no half of a run is taken for one.
pub async fn run(
    airlock: &Airlock,
    options: RunOptions,
    events: impl Fn(Event) + Send + Sync,
    cancel: CancellationToken,
) -> Result<RunOutcome, BenchError> {
    let mut out = OutputDir::claim(&options.out)?;
    let clock = std::time::Instant::now();
    let spaces = Spaces::new(airlock);
    let measured = measure_spaces(&spaces, &options, &events, &cancel).await;
    let warnings = spaces.delete_all(&events).await;
    events(Event::Measured);
    let measured = measured.inspect_err(|_| {
        for warning in &warnings {
            events(Event::Note(warning.clone()));
        }
    })?;
    let duration_seconds = clock.elapsed().as_secs_f64();
    let saved = measured
        .spaces
        .iter()
        .map(|space| {
            let csv = to_csv(&space.measurements.samples);
            (csv, derive(&options, &measured, space, duration_seconds))
        })
        .collect();
    let (results, report) = out.save_all(saved)?;
    Ok(RunOutcome {
        results,
        report,
        warnings,
    })
}

/// What was measured, and around it.
#[derive(Debug)]
struct Measured {
    host: Host,
    host_rates: Vec<HostRates>,
    load_before: LoadAverage,
    load_after: LoadAverage,
    spaces: Vec<MeasuredSpace>,
}

/// What was measured in one Space.
#[derive(Debug)]
struct MeasuredSpace {
    info: SpaceInfo,
    binaries: Vec<Binary>,
    measurements: Measurements,
}

async fn measure_spaces(
    spaces: &Spaces<'_>,
    options: &RunOptions,
    events: &(impl Fn(Event) + Send + Sync),
    cancel: &CancellationToken,
) -> Result<Measured, BenchError> {
    let airlock = spaces.airlock();
    let mut names = Vec::new();
    if let Some(name) = &options.space {
        names.push(name.clone());
    } else {
        for kind in options.kinds.as_slice() {
            let spec = spec(spaces, options, *kind).map_err(spaces::not_made)?;
            names.push(spec.name.clone());
            spaces.make(spec, events, cancel).await?;
        }
    }
    let (mut infos, mut subjects) = (Vec::new(), Vec::new());
    for name in &names {
        let step = || format!("measure the Space {name}");
        let space = airlock.space(name).await.map_err(BenchError::sdk(step()))?;
        let info = airlock.info(name).map_err(BenchError::sdk(step()))?;
        subjects.push(Subject {
            label: (names.len() > 1).then(|| info.kind.to_string()),
            target: SpaceTarget::new(space, cancel.clone()),
        });
        infos.push(info);
    }
    let scratch = tempfile::Builder::new()
        .prefix("airlock-bench-")
        .tempdir()
        .map_err(|source| BenchError::Scratch { source })?;
    let host = Host::capture(airlock.home().root(), scratch.path());
    let load_before = load_average();
    let mut native = vec![blocking(|| Ok(host_rates())).await?];
    let plan = &options.plan;
    let measurements = measure(&subjects, plan, SEED, scratch.path(), events, cancel).await?;
    native.push(blocking(|| Ok(host_rates())).await?);
    Ok(Measured {
        host,
        host_rates: native,
        load_before,
        load_after: load_average(),
        spaces: infos
            .into_iter()
            .zip(measurements)
            .map(|(info, measurements)| MeasuredSpace {
                binaries: match options.space {
                    Some(_) => Vec::new(),
                    None => image_binaries(airlock, &options.image, info.kind),
                },
                info,
                measurements,
            })
            .collect(),
    })
}

fn spec(spaces: &Spaces<'_>, options: &RunOptions, kind: Kind) -> Result<SpaceSpec, Error> {
    let mut spec = spaces.spec(&options.image, kind)?;
    // Room for the old and the new file of the largest size next to the image itself.
    let largest_gib = options
        .plan
        .files
        .largest_bytes()
        .div_ceil(airlock_model::size::GIB);
    spec.disk_gb = spec.disk_gb.max(4 + 3 * largest_gib);
    Ok(spec)
}
