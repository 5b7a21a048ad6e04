//! One run from the making of the Space to its deletion.

use std::io;
use std::path::PathBuf;

use airlock::{Airlock, CancellationToken, Error, SpaceInfo};
use airlock_model::{ImageName, SpaceName, SpaceSpec};
use jiff::Timestamp;

use crate::environment::{Host, LoadAverage, Software, load_average};
use crate::output::{OutputDir, OutputError, REPORT_FILE};
use crate::plan::Plan;
use crate::result::RunResult;
use crate::target::{SpaceTarget, TargetError};

mod derive;
mod measure;

use derive::{derive, space_binaries};
use measure::{Measurements, measure};

/// Seed of the content. Fixed, so that two runs send the same bytes.
const SEED: u64 = 0x0061_6972_6c6f_636b;

/// What to run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The running Space to measure; otherwise one is made and deleted.
    pub space: Option<SpaceName>,
    /// Image of the Space to make.
    pub image: ImageName,
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
    /// What was saved.
    pub result: RunResult,
    /// The rendered report.
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
    fn sdk(step: impl Into<String>) -> impl FnOnce(Error) -> Self {
        let step = step.into();
        move |source| Self::Sdk { step, source }
    }

    fn target(step: impl Into<String>) -> impl FnOnce(TargetError) -> Self {
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

/// Makes a Space (unless one is named), measures it, deletes it (if it was made) and saves.
///
/// The Space that was made is deleted whatever happens, also when `cancel` fires; what was
/// measured until then is dropped, so that no half of a run is taken for one.
pub async fn run(
    airlock: &Airlock,
    mut options: RunOptions,
    events: impl Fn(Event) + Send + Sync,
    cancel: CancellationToken,
) -> Result<RunOutcome, BenchError> {
    let mut out = OutputDir::claim(&options.out)?;
    let clock = std::time::Instant::now();
    let name = match &options.space {
        Some(name) => name.clone(),
        None => make_space(airlock, &options, &events, &cancel).await?,
    };
    let binaries = space_binaries(airlock, &options);
    options.software.binaries.extend(binaries);
    let measured = measure_space(airlock, &name, &options, &events, &cancel).await;
    let mut warnings = Vec::new();
    if options.space.is_none() {
        events(Event::Preparing(format!("deleting the Space {name}")));
        // Not by `cancel`: this is what cancelling is for.
        if let Err(error) = airlock.delete(&name).await {
            warnings.push(format!("the Space {name} could not be deleted: {error}"));
        }
    }
    events(Event::Measured);
    let measured = measured.inspect_err(|_| {
        for warning in &warnings {
            events(Event::Note(warning.clone()));
        }
    })?;
    let result = derive(&options, &measured, clock.elapsed().as_secs_f64());
    out.save(&measured.measurements.samples, &result)?;
    Ok(RunOutcome {
        result,
        report: out.path().join(REPORT_FILE),
        warnings,
    })
}

async fn make_space(
    airlock: &Airlock,
    options: &RunOptions,
    events: &(impl Fn(Event) + Send + Sync),
    cancel: &CancellationToken,
) -> Result<SpaceName, BenchError> {
    let failed = |error: Error| match error.kind() {
        airlock::ErrorKind::Cancelled => BenchError::Cancelled,
        _ => BenchError::sdk("make a Space")(error),
    };
    let name = airlock.free_name().map_err(failed)?;
    let mut spec = SpaceSpec::new(name.clone(), options.image.clone());
    // Room for the old and the new file of the largest size next to the image itself.
    let largest_gib = options
        .plan
        .files
        .largest_bytes()
        .div_ceil(airlock_model::size::GIB);
    spec.disk_gb = spec.disk_gb.max(4 + 3 * largest_gib);
    events(Event::Preparing(format!("making the Space {name}")));
    let narrate = |event: airlock::Event| match event {
        airlock::Event::Image(step) => events(Event::Preparing(format!(
            "image {}: {} {}",
            step.image, step.phase, step.detail
        ))),
        airlock::Event::Booting => events(Event::Preparing("booting".to_owned())),
        airlock::Event::Note(text) => events(Event::Note(text)),
        airlock::Event::Ready { boot_ms } => {
            events(Event::Note(format!(
                "{name} answered {boot_ms} ms after power-on"
            )));
        }
    };
    airlock
        .create(spec, narrate, cancel)
        .await
        .map_err(failed)?;
    Ok(name)
}

/// What was measured, and around it.
#[derive(Debug)]
struct Measured {
    info: SpaceInfo,
    host: Host,
    load_before: LoadAverage,
    load_after: LoadAverage,
    measurements: Measurements,
}

async fn measure_space(
    airlock: &Airlock,
    name: &SpaceName,
    options: &RunOptions,
    events: &(impl Fn(Event) + Send + Sync),
    cancel: &CancellationToken,
) -> Result<Measured, BenchError> {
    let step = || format!("measure the Space {name}");
    let space = airlock.space(name).await.map_err(BenchError::sdk(step()))?;
    let info = airlock.info(name).map_err(BenchError::sdk(step()))?;
    let scratch = tempfile::Builder::new()
        .prefix("airlock-bench-")
        .tempdir()
        .map_err(|source| BenchError::Scratch { source })?;
    let host = Host::capture(airlock.home().root(), scratch.path());
    let load_before = load_average();
    let target = SpaceTarget::new(space, cancel.clone());
    let measurements =
        measure(&target, &options.plan, SEED, scratch.path(), events, cancel).await?;
    Ok(Measured {
        info,
        host,
        load_before,
        load_after: load_average(),
        measurements,
    })
}
