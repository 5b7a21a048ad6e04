//! `airlock exec`.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};

use airlock::{Exec, ExecEnd, ExecEvent};
use tokio_util::sync::CancellationToken;

use crate::args::exec::ExecArgs;
use crate::commands::Context;
use crate::exit::{CommandError, Exit};

mod capture;
mod outcome;

use outcome::Outcome;

/// Runs one command. The exit code is the command's, so what fails besides has codes of its own.
pub(crate) async fn run(args: ExecArgs, context: &Context) -> Result<(), CommandError> {
    if args.json {
        capture::run(&args, context).await
    } else {
        stream(&args, context).await
    }
}

/// Passes the output on as it comes.
async fn stream(args: &ExecArgs, context: &Context) -> Result<(), CommandError> {
    let sink = |event: &ExecEvent| match event {
        ExecEvent::Stdout(bytes) => write(io::stdout().lock(), bytes),
        ExecEvent::Stderr(bytes) => write(io::stderr().lock(), bytes),
        ExecEvent::Started { .. } | ExecEvent::Ended(_) => Ok(()),
    };
    Outcome::of(run_to_end(args, context, sink).await).finish(args, context)
}

/// Why there is no end of the command to report.
#[derive(Debug)]
enum Failure {
    /// Airlock itself failed.
    Airlock(CommandError),
    /// Ctrl-C; the command was ended.
    Cancelled,
    /// Its output could not be written here; the command was ended.
    Output(io::Error),
}

impl From<airlock::Error> for Failure {
    fn from(error: airlock::Error) -> Self {
        Self::Airlock(error.into())
    }
}

/// Starts the command and gives its events to `sink` until it ends.
///
/// Leaving early drops the stream, and so ends the command and all that it started.
async fn run_to_end(
    args: &ExecArgs,
    context: &Context,
    mut sink: impl FnMut(&ExecEvent) -> io::Result<()>,
) -> Result<ExecEnd, Failure> {
    let mut stream = cancellable(&context.cancel, async {
        let exec = command(args).await?;
        Ok(exec.stream().await?)
    })
    .await?;
    loop {
        let next = cancellable(&context.cancel, async { Ok(stream.next().await?) }).await?;
        match next {
            Some(ExecEvent::Ended(end)) => return Ok(end),
            Some(event) => sink(&event).map_err(Failure::Output)?,
            None => {
                let message = "the command's output ended before the command did";
                return Err(Failure::Airlock(CommandError::new(Exit::Failure, message)));
            }
        }
    }
}

/// The command as the command line describes it, in a Space that answers.
async fn command(args: &ExecArgs) -> Result<Exec, Failure> {
    // clap lets no command line through without a program.
    let (program, rest) = args.command.split_first().unwrap_or_else(|| unreachable!());
    let program = text(program, "the command")?;
    let rest = rest
        .iter()
        .map(|arg| text(arg, "an argument"))
        .collect::<Result<Vec<_>, _>>()?;
    let space = airlock::Airlock::open()?.space(&args.name).await?;
    let mut exec = space.exec(program).args(rest);
    for variable in &args.env {
        exec = exec.env(
            text(&variable.name, "--env")?,
            text(&variable.value, "--env")?,
        );
    }
    if let Some(folder) = &args.cwd {
        exec = exec.cwd(text(folder, "--cwd")?);
    }
    if let Some(user) = &args.user {
        exec = exec.user(user);
    }
    if let Some(timeout) = args.timeout {
        exec = exec.timeout(timeout);
    }
    if args.interactive || !io::stdin().is_terminal() {
        exec = exec.stdin(tokio::io::stdin());
    }
    Ok(exec)
}

/// The contract that guestd speaks has texts here, not bytes.
fn text<'a>(value: &'a OsStr, what: &str) -> Result<&'a str, Failure> {
    value.to_str().ok_or_else(|| {
        let message = format!(
            "{what} {} is not UTF-8, which exec cannot pass on",
            value.display()
        );
        Failure::Airlock(
            CommandError::new(Exit::Usage, message)
                .hint("give it by standard input, or put it into a script"),
        )
    })
}

async fn cancellable<T>(
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Failure::Cancelled),
        result = work => result,
    }
}

fn write(mut stream: impl io::Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}
