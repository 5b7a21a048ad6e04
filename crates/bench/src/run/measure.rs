//! The schedule, step by step, on a target.

use std::path::{Path, PathBuf};
use std::time::Instant;

use airlock::CancellationToken;

use super::{BenchError, Event};
use crate::content::{self, Difference};
use crate::plan::Plan;
use crate::result::GuestRates;
use crate::samples::{Direction, Measured, Sample, Transfer};
use crate::schedule::{Phase, Step, steps};
use crate::target::Target;

/// Everything that was measured.
#[derive(Debug, Default)]
pub(super) struct Measurements {
    /// One row for each sample.
    pub(super) samples: Vec<Sample>,
    /// The Space's rates before and after.
    pub(super) rates: Vec<GuestRates>,
}

/// Does every step of the plan; stops between two of them, or within a transfer, when cancelled.
pub(super) async fn measure(
    target: &impl Target,
    plan: &Plan,
    seed: u64,
    scratch: &Path,
    events: &(impl Fn(Event) + Send + Sync),
    cancel: &CancellationToken,
) -> Result<Measurements, BenchError> {
    let steps = steps(plan);
    let total = steps.len() as u64 + 2;
    let step_event = |done: usize, label: String| {
        events(Event::Step {
            done: done as u64,
            total,
            label,
        });
    };
    let mut run = Run {
        target,
        seed,
        scratch,
        measurements: Measurements::default(),
    };
    step_event(0, "rates of the Space".to_owned());
    cancellable(cancel, run.rates()).await?;
    for (index, step) in steps.iter().enumerate() {
        step_event(index + 1, label(step));
        cancellable(cancel, run.step(step)).await?;
    }
    step_event(steps.len() + 1, "rates of the Space".to_owned());
    cancellable(cancel, run.rates()).await?;
    Ok(run.measurements)
}

/// Lets a step end by itself when it was asked to: a transfer then leaves nothing half-written.
async fn cancellable(
    cancel: &CancellationToken,
    step: impl Future<Output = Result<(), BenchError>>,
) -> Result<(), BenchError> {
    if cancel.is_cancelled() {
        return Err(BenchError::Cancelled);
    }
    let result = step.await;
    if cancel.is_cancelled() {
        Err(BenchError::Cancelled)
    } else {
        result
    }
}

struct Run<'a, T> {
    target: &'a T,
    seed: u64,
    scratch: &'a Path,
    measurements: Measurements,
}

impl<T: Target> Run<'_, T> {
    async fn step(&mut self, step: &Step) -> Result<(), BenchError> {
        match *step {
            Step::Latency { latency, phase } => {
                let failed = BenchError::target(format!("time {}", latency.as_str()));
                let start = Instant::now();
                self.target.round_trip(latency).await.map_err(failed)?;
                self.record(Measured::Latency(latency), phase, start);
                Ok(())
            }
            Step::Prepare(file) => {
                let (path, seed) = (self.source(file.size_bytes()), self.seed);
                let size_bytes = file.size_bytes();
                blocking(move || content::write_file(&path, seed, size_bytes)).await
            }
            Step::Transfer {
                size_bytes,
                direction,
                phase,
            } => self.transfer(size_bytes, direction, phase).await,
            Step::Compare { size_bytes } => self.compare(size_bytes).await,
            Step::CleanUp { size_bytes } => {
                let (source, back) = (self.source(size_bytes), self.back(size_bytes));
                blocking(move || {
                    fs_err::remove_file(source)?;
                    fs_err::remove_file(back)
                })
                .await?;
                let failed = BenchError::target("remove the benchmark's file from the Space");
                self.target
                    .remove(&guest_name(size_bytes))
                    .await
                    .map_err(failed)
            }
        }
    }

    async fn transfer(
        &mut self,
        size_bytes: u64,
        direction: Direction,
        phase: Phase,
    ) -> Result<(), BenchError> {
        let (source, back) = (self.source(size_bytes), self.back(size_bytes));
        let name = guest_name(size_bytes);
        let failed = BenchError::target(format!("{} {size_bytes} bytes", direction.as_str()));
        let start = Instant::now();
        let route = match direction {
            Direction::Upload => self.target.upload(&source, &name).await,
            Direction::Download => self.target.download(&name, &back).await,
        }
        .map_err(failed)?;
        let transfer = Transfer {
            size_bytes,
            direction,
            route,
        };
        self.record(Measured::Transfer(transfer), phase, start);
        Ok(())
    }

    async fn compare(&self, size_bytes: u64) -> Result<(), BenchError> {
        let (path, seed) = (self.back(size_bytes), self.seed);
        let difference = blocking(move || content::compare_file(&path, seed, size_bytes)).await?;
        let difference = match difference {
            None => return Ok(()),
            Some(Difference::At(offset)) => format!("with another byte at {offset}"),
            Some(Difference::Length(bytes)) => format!("with {bytes} bytes"),
        };
        Err(BenchError::Different {
            size_bytes,
            difference,
        })
    }

    async fn rates(&mut self) -> Result<(), BenchError> {
        let failed = BenchError::target("measure the rates of the Space");
        self.measurements
            .rates
            .push(self.target.rates().await.map_err(failed)?);
        Ok(())
    }

    fn record(&mut self, measured: Measured, phase: Phase, start: Instant) {
        let ms = start.elapsed().as_secs_f64() * 1000.0;
        match phase {
            Phase::WarmUp => {}
            Phase::Measured(iteration) => {
                self.measurements.samples.push(Sample {
                    measured,
                    iteration,
                    ms,
                });
            }
        }
    }

    fn source(&self, size_bytes: u64) -> PathBuf {
        self.scratch.join(format!("up-{size_bytes}"))
    }

    fn back(&self, size_bytes: u64) -> PathBuf {
        self.scratch.join(format!("down-{size_bytes}"))
    }
}

/// In the home folder of the Space's user, which is on its disk where it has one.
fn guest_name(size_bytes: u64) -> String {
    format!("airlock-bench-{size_bytes}")
}

fn label(step: &Step) -> String {
    let mib = |size_bytes: u64| size_bytes / airlock_model::size::MIB;
    match step {
        Step::Latency { latency, .. } => latency.as_str().to_owned(),
        Step::Prepare(file) => format!("content of {} MiB", file.size_mib),
        Step::Transfer {
            size_bytes,
            direction,
            ..
        } => {
            format!("{} of {} MiB", direction.as_str(), mib(*size_bytes))
        }
        Step::Compare { size_bytes } => format!("compare {} MiB", mib(*size_bytes)),
        Step::CleanUp { size_bytes } => format!("remove {} MiB", mib(*size_bytes)),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, BenchError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(std::io::Error::other(error)))
        .map_err(|source| BenchError::Scratch { source })
}

#[cfg(test)]
mod tests;
