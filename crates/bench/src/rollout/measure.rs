//! The rounds, on a fleet.

use std::error::Error as _;
use std::time::Instant;

use airlock::CancellationToken;
use airlock_model::Kind;

use super::RolloutPlan;
use super::fleet::Fleet;
use super::result::{Failure, Metric, Sample};
use crate::result::SpaceFacts;
use crate::run::{BenchError, Event, cancellable};

/// What was measured with one kind.
#[derive(Debug)]
pub(super) struct Measurements {
    /// What its Spaces were.
    pub(super) facts: SpaceFacts,
    /// One row for each sample.
    pub(super) samples: Vec<Sample>,
    /// Batches that failed.
    pub(super) failures: Vec<Failure>,
}

/// Does one round after the other, the kinds in turn. The first Space of each kind is a warm-up:
/// it makes sure of the image and says what the kind is.
///
/// A batch that fails is noted, and ends the batches of its kind: many emulated machines at once
/// may be more than the host can boot in time, which spoils no other figure.
pub(super) async fn measure<F: Fleet>(
    fleet: &F,
    kinds: &[Kind],
    plan: &RolloutPlan,
    events: &(impl Fn(Event) + Send + Sync),
    cancel: &CancellationToken,
) -> Result<Vec<Measurements>, BenchError> {
    let rounds = 1 + u64::from(plan.iterations) + u64::from(plan.batches);
    let total = rounds * kinds.len() as u64;
    let mut done = 0;
    let mut step_event = |kind: Kind, what: &str| {
        let label = match kind {
            Kind::Auto => what.to_owned(),
            Kind::Vm | Kind::Container => format!("{what} ({kind})"),
        };
        events(Event::Step { done, total, label });
        done += 1;
    };
    let mut runs = Vec::new();
    for kind in kinds {
        step_event(*kind, "first Space");
        runs.push(Run::warmed_up(fleet, *kind, cancel).await?);
    }
    for iteration in 0..plan.iterations {
        for run in &mut runs {
            step_event(run.kind, "create, stop, start, delete");
            run.round(iteration).await?;
        }
    }
    for iteration in 0..plan.batches {
        for run in &mut runs {
            step_event(run.kind, &format!("{} at once", plan.batch_size));
            run.batch(iteration, plan.batch_size).await?;
        }
    }
    Ok(runs.into_iter().map(|run| run.measurements).collect())
}

struct Run<'a, F> {
    fleet: &'a F,
    kind: Kind,
    cancel: &'a CancellationToken,
    measurements: Measurements,
}

impl<'a, F: Fleet> Run<'a, F> {
    async fn warmed_up(
        fleet: &'a F,
        kind: Kind,
        cancel: &'a CancellationToken,
    ) -> Result<Self, BenchError> {
        let facts = cancellable(cancel, async {
            let failed = || BenchError::target(said(kind, "make the first Space"));
            let space = fleet.create(kind).await.map_err(failed())?;
            let facts = fleet.facts(&space).map_err(failed())?;
            fleet.delete(space).await.map_err(failed())?;
            Ok(facts)
        })
        .await?;
        Ok(Self {
            fleet,
            kind,
            cancel,
            measurements: Measurements {
                facts,
                samples: Vec::new(),
                failures: Vec::new(),
            },
        })
    }

    /// One Space from its making to its end.
    async fn round(&mut self, iteration: u32) -> Result<(), BenchError> {
        let (fleet, kind) = (self.fleet, self.kind);
        let space = self
            .timed(Metric::CreateToExec, iteration, fleet.create(kind))
            .await?;
        self.timed(Metric::Stop, iteration, fleet.stop(&space))
            .await?;
        self.timed(Metric::StartToExec, iteration, fleet.start(&space))
            .await?;
        self.timed(Metric::Delete, iteration, fleet.delete(space))
            .await
    }

    async fn timed<T>(
        &mut self,
        metric: Metric,
        iteration: u32,
        step: impl Future<Output = Result<T, crate::target::TargetError>>,
    ) -> Result<T, BenchError> {
        let kind = self.kind;
        let (done, ms) = cancellable(self.cancel, async {
            let start = Instant::now();
            let failed = BenchError::target(said(kind, &format!("time {}", metric.as_str())));
            let done = step.await.map_err(failed)?;
            Ok((done, milliseconds_since(start)))
        })
        .await?;
        self.measurements.samples.push(Sample {
            metric,
            spaces: 1,
            iteration,
            ms,
        });
        Ok(done)
    }

    async fn batch(&mut self, iteration: u32, count: u32) -> Result<(), BenchError> {
        if !self.measurements.failures.is_empty() {
            return Ok(());
        }
        let (fleet, kind) = (self.fleet, self.kind);
        let made = cancellable(self.cancel, async {
            let start = Instant::now();
            let made = fleet.create_together(kind, count).await;
            Ok(made.map(|spaces| (spaces, milliseconds_since(start))))
        })
        .await?;
        match made {
            Ok((spaces, ms)) => {
                self.measurements.samples.push(Sample {
                    metric: Metric::CreateTogether,
                    spaces: count,
                    iteration,
                    ms,
                });
                for space in spaces {
                    let failed = BenchError::target(said(kind, "delete a Space of a batch"));
                    fleet.delete(space).await.map_err(failed)?;
                }
            }
            Err(error) => {
                let mut reason = error.to_string();
                let mut source = error.source();
                while let Some(error) = source {
                    reason = format!("{reason}: {error}");
                    source = error.source();
                }
                self.measurements.failures.push(Failure {
                    metric: Metric::CreateTogether,
                    iteration,
                    reason,
                });
                fleet.clear().await;
            }
        }
        Ok(())
    }
}

fn said(kind: Kind, what: &str) -> String {
    match kind {
        Kind::Auto => what.to_owned(),
        Kind::Vm | Kind::Container => format!("{what} ({kind})"),
    }
}

fn milliseconds_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests;
