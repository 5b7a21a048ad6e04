//! One file for each subcommand.

use airlock::Airlock;
use clap::CommandFactory as _;
use tokio_util::sync::CancellationToken;

use crate::args::{Cli, Command, SpacesCommand};
use crate::exit::{CommandError, Exit};
use crate::output::{self, Output};

mod bench;
mod build_talk;
mod config;
mod cp;
mod doctor;
mod exec;
mod image;
mod spaces;

/// What every command has at hand.
#[derive(Debug)]
pub(crate) struct Context {
    /// Where words go.
    pub(crate) out: Output,
    /// Cancelled by Ctrl-C.
    pub(crate) cancel: CancellationToken,
}

/// Opens `AIRLOCK_HOME`.
fn airlock() -> Result<Airlock, CommandError> {
    Ok(Airlock::open()?)
}

/// Does what the command line says.
pub(crate) async fn run(command: Command, context: &Context) -> Result<(), CommandError> {
    match command {
        Command::Spaces(SpacesCommand::Create(args)) => spaces::create::run(args, context).await,
        Command::Spaces(SpacesCommand::Ls(args)) => spaces::list::run(&args, context),
        Command::Spaces(SpacesCommand::Info(args)) => spaces::info::run(args, context).await,
        Command::Spaces(SpacesCommand::Stop(args)) => spaces::stop::run(args, context).await,
        Command::Spaces(SpacesCommand::Start(args)) => spaces::start::run(args, context).await,
        Command::Spaces(SpacesCommand::Delete(args)) => spaces::delete::run(args, context).await,
        Command::Cp(args) => cp::run(args, context).await,
        Command::Exec(args) => exec::run(args, context).await,
        Command::Image(command) => image::run(command, context).await,
        Command::Config(command) => config::run(command, context),
        Command::Doctor(args) => doctor::run(&args, context).await,
        Command::Bench(command) => bench::run(command, context).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "airlock", &mut script);
            output::bytes(&script)
        }
    }
}

impl From<airlock::Error> for CommandError {
    fn from(error: airlock::Error) -> Self {
        Self::from_error(exit_of(error.kind()), &error).with_hints(error.hints())
    }
}

/// The exit code of a kind of error.
pub(crate) fn exit_of(kind: airlock::ErrorKind) -> Exit {
    use airlock::ErrorKind;
    match kind {
        ErrorKind::Failure => Exit::Failure,
        ErrorKind::Usage => Exit::Usage,
        ErrorKind::NotFound => Exit::NotFound,
        ErrorKind::Unsupported => Exit::Unsupported,
        ErrorKind::NoAnswer => Exit::NoAnswer,
        ErrorKind::Denied => Exit::Denied,
        ErrorKind::HostDiskFull => Exit::HostDiskFull,
        ErrorKind::TimedOut => Exit::TimedOut,
        ErrorKind::Cancelled => Exit::Cancelled,
    }
}

/// Does something for each of several names, and goes on when it fails for one.
///
/// Every failure is told as it happens; the first one's code is the command's.
pub(crate) async fn each<T>(
    names: impl IntoIterator<Item = T>,
    context: &Context,
    mut action: impl AsyncFnMut(T) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let mut first = Ok(());
    for name in names {
        if context.cancel.is_cancelled() {
            return first.and(Err(CommandError::silent(Exit::Cancelled.code())));
        }
        if let Err(error) = action(name).await {
            output::error(&error);
            first = first.and(Err(CommandError::silent(error.code())));
        }
    }
    first
}
