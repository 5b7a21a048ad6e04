//! Starting a keeper and hearing from it until the Space is ready.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use airlock_keeper::protocol::{Launch, LaunchEvent, LaunchFailure, ProcessId};
use airlock_model::SpacePaths;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::{EngineError, ErrorKind, Event, EventSink};

/// Names the program to run as keeper.
const KEEPER_VARIABLE: &str = "AIRLOCK_KEEPER";
/// How long a keeper that was told to give up may take before it is killed.
const GIVE_UP_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts the keeper that `launch` describes and waits until the Space is ready.
///
/// On an error no process of it is left.
pub(crate) async fn launch(
    launch: &Launch,
    paths: &SpacePaths,
    events: EventSink<'_>,
    cancel: &CancellationToken,
) -> Result<(), EngineError> {
    let mut child = spawn()?;
    let heard = tokio::select! {
        heard = hear(&mut child, launch, paths, events) => heard,
        () = cancel.cancelled() => Err(EngineError::Cancelled),
    };
    if heard.is_err() {
        give_up(child).await?;
    }
    heard
}

fn spawn() -> Result<Child, EngineError> {
    let mut command = Command::new(own_program()?);
    command
        .arg("keeper")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // The keeper outlives this process; it is killed only by name.
        .kill_on_drop(false);
    command.spawn().map_err(EngineError::KeeperStart)
}

/// The program that runs as keeper and the like: what the variable names, else this very program if it is
/// `airlock`, else the `airlock` beside it or in `PATH`.
pub(crate) fn own_program() -> Result<PathBuf, EngineError> {
    let named = std::env::var_os(KEEPER_VARIABLE).filter(|value| !value.is_empty());
    if let Some(named) = named {
        return Ok(PathBuf::from(named));
    }
    if let Ok(own) = std::env::current_exe() {
        if own.file_stem().is_some_and(|stem| stem == "airlock") {
            // By its descriptor: it stays the same program when the file is replaced meanwhile.
            return Ok(own);
        }
        let beside = own.with_file_name("airlock");
        if beside.is_file() {
            return Ok(beside);
        }
    }
    airlock_image::host::find_tool("airlock").ok_or(EngineError::NoKeeperProgram)
}

async fn hear(
    child: &mut Child,
    launch: &Launch,
    paths: &SpacePaths,
    events: EventSink<'_>,
) -> Result<(), EngineError> {
    let silent = || EngineError::KeeperSilent {
        log_tail: log_tail(&paths.keeper_log()),
    };
    let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
    let stdin = child
        .stdin
        .as_mut()
        .ok_or_else(closed)
        .map_err(EngineError::KeeperStart)?;
    let mut line = serde_json::to_vec(launch)
        .map_err(|error| EngineError::KeeperStart(io::Error::other(error)))?;
    line.push(b'\n');
    stdin
        .write_all(&line)
        .await
        .map_err(EngineError::KeeperStart)?;
    let stdout = child.stdout.take().ok_or_else(silent)?;
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next_line().await.map_err(EngineError::KeeperStart)? {
        let event = serde_json::from_str(&line)
            .map_err(|error| EngineError::KeeperStart(io::Error::other(error)))?;
        match event {
            LaunchEvent::Booting => events(Event::Booting),
            LaunchEvent::Ready { boot_ms } => {
                events(Event::Ready { boot_ms });
                return Ok(());
            }
            LaunchEvent::Failed {
                kind,
                message,
                hints,
                console_tail,
            } => {
                return Err(EngineError::Launch {
                    kind: error_kind(kind),
                    message,
                    hints,
                    console_tail,
                    console: paths.console_log(),
                });
            }
        }
    }
    Err(silent())
}

/// The last lines of the log at `path`, which may be removed soon.
fn log_tail(path: &Path) -> String {
    const LINES: usize = 3;
    let text = fs_err::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return "(empty)".to_owned();
    }
    lines[lines.len().saturating_sub(LINES)..].join("; ")
}

fn error_kind(failure: LaunchFailure) -> ErrorKind {
    match failure {
        LaunchFailure::Unsupported => ErrorKind::Unsupported,
        LaunchFailure::Boot | LaunchFailure::AlreadyRunning | LaunchFailure::Host => {
            ErrorKind::Failure
        }
        LaunchFailure::Cancelled => ErrorKind::Cancelled,
    }
}

/// Lets a keeper end itself by closing its standard input, and kills it if it does not. The
/// machine dies with it either way.
async fn give_up(mut child: Child) -> Result<(), EngineError> {
    drop(child.stdin.take());
    if tokio::time::timeout(GIVE_UP_TIMEOUT, child.wait())
        .await
        .is_ok()
    {
        return Ok(());
    }
    if let Some(id) = child.id().and_then(|pid| ProcessId::of(pid).ok()) {
        id.kill().map_err(EngineError::KeeperStart)?;
    }
    child.wait().await.map_err(EngineError::KeeperStart)?;
    Ok(())
}
