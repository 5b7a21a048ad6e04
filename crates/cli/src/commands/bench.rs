//! `airlock bench`.

use std::path::Path;
use std::sync::Mutex;

use airlock_bench::environment::Software;
use airlock_bench::output::{Saved, default_dir};
use airlock_bench::result::RunResult;
use airlock_bench::rollout::{self, RolloutOptions, RolloutPlan, RolloutResult};
use airlock_bench::{BenchError, Event, Kinds, KindsError, Plan, RunOptions, report};
use airlock_model::Kind;

use crate::args::bench::{BenchCommand, BenchRun, FileTransferArgs, RolloutArgs};
use crate::commands::{self, Context, exit_of};
use crate::exit::{CommandError, Exit, io_exit};
use crate::output;
use crate::progress::Progress;

/// Runs a benchmark.
pub(crate) async fn run(command: BenchCommand, context: &Context) -> Result<(), CommandError> {
    match command {
        BenchCommand::Run(BenchRun::FileTransfer(args)) => file_transfer(args, context).await,
        BenchCommand::Run(BenchRun::Rollout(args)) => run_rollout(args, context).await,
    }
}

async fn file_transfer(args: FileTransferArgs, context: &Context) -> Result<(), CommandError> {
    let kinds = kinds(args.kind)?;
    let airlock = commands::airlock()?;
    let started_at = jiff::Timestamp::now();
    let options = RunOptions {
        space: args.space,
        image: args.image,
        kinds,
        plan: Plan {
            latency_iterations: args.iters,
            files: args.files,
            ..Plan::default()
        },
        out: args
            .out
            .unwrap_or_else(|| default_dir::<RunResult>(started_at)),
        started_at,
        software: Software::capture(airlock::BUILD),
    };
    let outcome = {
        let narrator = Narrator::new(context);
        let narrate = move |event| narrator.tell(event);
        airlock_bench::run(&airlock, options, narrate, context.cancel.clone()).await?
    };
    let text = |results: &[RunResult]| match results {
        [only] => report::tables(only),
        several => report::compare::table(several),
    };
    show(&outcome.results, text, args.json)?;
    after(&outcome.warnings, &outcome.report, context);
    Ok(())
}

async fn run_rollout(args: RolloutArgs, context: &Context) -> Result<(), CommandError> {
    let kinds = kinds(args.kind)?;
    let airlock = commands::airlock()?;
    let started_at = jiff::Timestamp::now();
    let options = RolloutOptions {
        image: args.image,
        kinds,
        plan: RolloutPlan {
            iterations: args.n,
            batches: args.batches,
            batch_size: args.batch_size,
        },
        out: args
            .out
            .unwrap_or_else(|| default_dir::<RolloutResult>(started_at)),
        started_at,
        software: Software::capture(airlock::BUILD),
    };
    let outcome = {
        let narrator = Narrator::new(context);
        let narrate = move |event| narrator.tell(event);
        rollout::run(&airlock, options, narrate, context.cancel.clone()).await?
    };
    let text = |results: &[RolloutResult]| match results {
        [only] => rollout::table(only),
        several => rollout::comparison_table(several),
    };
    show(&outcome.results, text, args.json)?;
    after(&outcome.warnings, &outcome.report, context);
    Ok(())
}

fn kinds(asked: Vec<Kind>) -> Result<Kinds, CommandError> {
    Kinds::new(asked).map_err(|error| {
        let hint = match error {
            KindsError::Twice { .. } => "leave one of them away",
            KindsError::AutoAmongOthers => "use --kind container --kind vm",
        };
        CommandError::new(Exit::Usage, error.to_string()).hint(hint)
    })
}

/// Prints the result of one kind as it is saved; those of several as an array.
fn show<R: Saved>(
    results: &[R],
    text: impl Fn(&[R]) -> String,
    json: bool,
) -> Result<(), CommandError> {
    match (json, results) {
        (true, [only]) => output::json(only),
        (true, several) => output::json(&several),
        (false, results) => output::data(&text(results)),
    }
}

fn after(warnings: &[String], report: &Path, context: &Context) {
    for warning in warnings {
        context.out.warn(warning);
    }
    context
        .out
        .note(&format!("the report is {}", report.display()));
}

/// A line that says how far the run is.
struct Narrator {
    out: crate::output::Output,
    progress: Mutex<Option<Progress>>,
}

impl Narrator {
    fn new(context: &Context) -> Self {
        Self {
            out: context.out,
            progress: Mutex::new(None),
        }
    }

    fn tell(&self, event: Event) {
        // A poisoned lock holds a bar that is as good as before.
        let mut progress = self
            .progress
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match event {
            Event::Note(text) => match &*progress {
                Some(bar) => bar.suspend(|| self.out.note(&text)),
                None => self.out.note(&text),
            },
            Event::Preparing(text) => {
                let bar = progress.get_or_insert_with(|| Progress::activity(self.out));
                bar.tick();
                bar.say(text);
            }
            Event::Step { done, total, label } => {
                if done == 0 {
                    *progress = Some(Progress::steps(self.out, total));
                }
                if let Some(bar) = &*progress {
                    bar.say(label);
                    bar.set(done, None);
                }
            }
            Event::Measured => *progress = None,
        }
    }
}

impl From<BenchError> for CommandError {
    fn from(error: BenchError) -> Self {
        let exit = match &error {
            BenchError::Sdk { source, .. } => exit_of(source.kind()),
            BenchError::Cancelled => Exit::Cancelled,
            BenchError::Scratch { source, .. } => io_exit(source),
            BenchError::Output(_) | BenchError::Different { .. } | BenchError::Command { .. } => {
                Exit::Failure
            }
        };
        let hints = match &error {
            BenchError::Sdk { source, .. } => source.hints(),
            BenchError::Output(airlock_bench::output::OutputError::Exists { .. }) => {
                vec!["name another folder with --out; results are never overwritten".to_owned()]
            }
            BenchError::Scratch { source } if io_exit(source) == Exit::HostDiskFull => {
                vec!["set TMPDIR to a folder with more room, or shrink --files".to_owned()]
            }
            BenchError::Output(_)
            | BenchError::Cancelled
            | BenchError::Scratch { .. }
            | BenchError::Different { .. }
            | BenchError::Command { .. } => Vec::new(),
        };
        Self::from_error(exit, &error).with_hints(hints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_cannot_be_compared_are_a_matter_of_usage() {
        assert_eq!(kinds(vec![]).unwrap(), Kinds::default());
        for asked in [vec![Kind::Vm, Kind::Vm], vec![Kind::Auto, Kind::Vm]] {
            let error = kinds(asked).unwrap_err();
            assert_eq!(error.code(), Exit::Usage.code());
        }
    }
}
