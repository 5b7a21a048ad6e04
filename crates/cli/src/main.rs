//! The airlock command line: parse, run, end with the right code.

mod args;
mod cancel;
mod commands;
mod endpoint;
mod exit;
mod output;
mod progress;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Cli, Command};
use crate::commands::Context;
use crate::exit::{CommandError, Exit};
use crate::output::{Output, Talk};

fn main() -> ExitCode {
    // Before anything else: these processes take over what they inherit, and must have neither
    // descriptors nor threads of their own yet. Not for people, so not in the grammar.
    if let Some(code) = airlock::internal_main(std::env::args_os()) {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_parsed(&error),
    };
    let out = Output::new(match (cli.quiet, cli.verbose) {
        (true, _) => Talk::Quiet,
        (false, true) => Talk::Verbose,
        (false, false) => Talk::Normal,
    });
    log_to_stderr(cli.verbose);
    match run(cli.command, out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::from(error.code())
        }
    }
}

fn run(command: Command, out: Output) -> Result<(), CommandError> {
    let start = |error: &std::io::Error| CommandError::from_error(Exit::Failure, error);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| start(&error))?;
    let context = Context {
        out,
        cancel: cancel::on_signals(out).map_err(|error| start(&error))?,
    };
    let result = runtime.block_on(commands::run(command, &context));
    // A thread may still sit in a read of standard input that never ends.
    runtime.shutdown_background();
    result
}

/// Help and version are no errors; everything else is usage, of which `exec` has its own code.
fn not_parsed(error: &clap::Error) -> ExitCode {
    // Nobody is left to tell when this cannot be printed.
    let _ = error.print();
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    ExitCode::from(if args::is_exec(std::env::args_os().skip(1)) {
        exit::exec::AIRLOCK_FAILED
    } else {
        Exit::Usage.code()
    })
}

/// What the libraries have to say: warnings, or all of it with `--verbose` or as `AIRLOCK_LOG`
/// says.
fn log_to_stderr(verbose: bool) {
    use tracing_subscriber::EnvFilter;
    let default = if verbose { "airlock=debug" } else { "warn" };
    let filter = EnvFilter::try_from_env("AIRLOCK_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .init();
}
