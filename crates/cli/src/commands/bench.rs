//! `airlock bench`.

use std::sync::Mutex;

use airlock_bench::environment::Software;
use airlock_bench::output::default_dir;
use airlock_bench::{BenchError, Event, Plan, RunOptions, report};

use crate::args::bench::{BenchCommand, BenchRun, FileTransferArgs};
use crate::commands::{self, Context, exit_of};
use crate::exit::{CommandError, Exit, io_exit};
use crate::output;
use crate::progress::Progress;

/// Runs a benchmark.
pub(crate) async fn run(command: BenchCommand, context: &Context) -> Result<(), CommandError> {
    match command {
        BenchCommand::Run(BenchRun::FileTransfer(args)) => file_transfer(args, context).await,
    }
}

async fn file_transfer(args: FileTransferArgs, context: &Context) -> Result<(), CommandError> {
    let airlock = commands::airlock()?;
    let started_at = jiff::Timestamp::now();
    let options = RunOptions {
        space: args.space,
        image: args.image,
        plan: Plan {
            latency_iterations: args.iters,
            files: args.files,
            ..Plan::default()
        },
        out: args.out.unwrap_or_else(|| default_dir(started_at)),
        started_at,
        software: Software::capture(airlock::BUILD),
    };
    let outcome = {
        let narrator = Narrator::new(context);
        let narrate = move |event| narrator.tell(event);
        airlock_bench::run(&airlock, options, narrate, context.cancel.clone()).await?
    };
    for warning in &outcome.warnings {
        context.out.warn(warning);
    }
    if args.json {
        output::json(&outcome.result)?;
    } else {
        output::data(&report::tables(&outcome.result))?;
    }
    context
        .out
        .note(&format!("the report is {}", outcome.report.display()));
    Ok(())
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
