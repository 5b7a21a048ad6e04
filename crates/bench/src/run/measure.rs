//! The schedule, step by step, on a target.

use std::path::{Path, PathBuf};
use std::time::Instant;

use airlock::CancellationToken;

use super::{BenchError, Event};
use crate::content::{self, Difference};
use crate::plan::Plan;
use crate::result::GuestRates;
use crate::samples::{Direction, Measured, Sample, Transfer};
use crate::schedule::{Phase, Step, turns};
use crate::target::Target;

/// Everything that was measured.
#[derive(Debug, Default)]
pub(super) struct Measurements {
    /// One row for each sample.
    pub(super) samples: Vec<Sample>,
    /// The Space's rates before and after.
    pub(super) rates: Vec<GuestRates>,
}

/// One of the Spaces that are measured in turn.
#[derive(Debug)]
pub(super) struct Subject<T> {
    /// What tells it from the others; absent where it is alone.
    pub(super) label: Option<String>,
    /// The Space itself.
    pub(super) target: T,
}

/// Does every step of the plan on every subject in turn; stops between two steps, or within a
/// transfer, when cancelled. Returns what was measured in each, in their order.
pub(super) async fn measure<T: Target>(
    subjects: &[Subject<T>],
    plan: &Plan,
    seed: u64,
    scratch: &Path,
    events: &(impl Fn(Event) + Send + Sync),
    cancel: &CancellationToken,
) -> Result<Vec<Measurements>, BenchError> {
    let turns = turns(plan, subjects.len());
    let total = (turns.len() + 2 * subjects.len()) as u64;
    let mut done = 0;
    let mut step_event = |label: String| {
        events(Event::Step { done, total, label });
        done += 1;
    };
    let mut runs: Vec<_> = subjects
        .iter()
        .enumerate()
        .map(|(number, subject)| Run {
            number,
            subject,
            seed,
            scratch,
            measurements: Measurements::default(),
        })
        .collect();
    for run in &mut runs {
        step_event(run.said("rates of the Space"));
        cancellable(cancel, run.rates()).await?;
    }
    for turn in turns {
        let run = &mut runs[turn.space];
        step_event(run.said(&label(&turn.step)));
        cancellable(cancel, run.step(&turn.step)).await?;
    }
    for run in &mut runs {
        step_event(run.said("rates of the Space"));
        cancellable(cancel, run.rates()).await?;
    }
    Ok(runs.into_iter().map(|run| run.measurements).collect())
}

/// Lets a step end by itself when it was asked to: a transfer then leaves nothing half-written.
pub(crate) async fn cancellable<T>(
    cancel: &CancellationToken,
    step: impl Future<Output = Result<T, BenchError>>,
) -> Result<T, BenchError> {
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
    number: usize,
    subject: &'a Subject<T>,
    seed: u64,
    scratch: &'a Path,
    measurements: Measurements,
}

impl<T: Target> Run<'_, T> {
    /// `what`, and in which of several Spaces.
    fn said(&self, what: &str) -> String {
        match &self.subject.label {
            Some(label) => format!("{what} ({label})"),
            None => what.to_owned(),
        }
    }

    async fn step(&mut self, step: &Step) -> Result<(), BenchError> {
        match *step {
            Step::Latency { latency, phase } => {
                let failed = BenchError::target(self.said(&format!("time {}", latency.as_str())));
                let start = Instant::now();
                self.subject
                    .target
                    .round_trip(latency)
                    .await
                    .map_err(failed)?;
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
                let back = self.back(size_bytes);
                blocking(move || fs_err::remove_file(back)).await?;
                let failed =
                    BenchError::target(self.said("remove the benchmark's file from the Space"));
                self.subject
                    .target
                    .remove(&guest_name(size_bytes))
                    .await
                    .map_err(failed)
            }
            Step::Discard { size_bytes } => {
                let source = self.source(size_bytes);
                blocking(move || fs_err::remove_file(source)).await
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
        let failed =
            BenchError::target(self.said(&format!("{} {size_bytes} bytes", direction.as_str())));
        // Every sample makes a new file. Replacing one makes ext4 write the new one to the disk first
        // (ext4(5), auto_da_alloc), which is another measurement.
        match direction {
            Direction::Upload => {
                let failed =
                    BenchError::target(self.said("remove the benchmark's file from the Space"));
                self.subject.target.remove(&name).await.map_err(failed)?;
            }
            Direction::Download => {
                let back = back.clone();
                blocking(move || match fs_err::remove_file(back) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                    removed => removed,
                })
                .await?;
            }
        }
        let start = Instant::now();
        let route = match direction {
            Direction::Upload => self.subject.target.upload(&source, &name).await,
            Direction::Download => self.subject.target.download(&name, &back).await,
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
        let failed = BenchError::target(self.said("measure the rates of the Space"));
        self.measurements
            .rates
            .push(self.subject.target.rates().await.map_err(failed)?);
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

    /// The content is the same for all of them, and so is its file.
    fn source(&self, size_bytes: u64) -> PathBuf {
        self.scratch.join(format!("up-{size_bytes}"))
    }

    fn back(&self, size_bytes: u64) -> PathBuf {
        self.scratch
            .join(format!("down-{size_bytes}-{}", self.number))
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
        Step::CleanUp { size_bytes } | Step::Discard { size_bytes } => {
            format!("remove {} MiB", mib(*size_bytes))
        }
    }
}

/// Does blocking work on the benchmark's own files.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, BenchError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(std::io::Error::other(error)))
        .map_err(|source| BenchError::Scratch { source })
}

#[cfg(test)]
mod tests;
