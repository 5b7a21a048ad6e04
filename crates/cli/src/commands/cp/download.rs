//! Out of a Space.

use std::error::Error as StdError;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use airlock::{GuestPath, Target};

use super::local;
use super::receipt::{Direction, Transfer};
use crate::args::copy::CopyArgs;
use crate::commands::{self, Context};
use crate::endpoint::{LocalEnd, SpacePath};
use crate::exit::{CommandError, Exit};
use crate::progress::Progress;

/// Fetches one file.
pub(super) async fn run(
    source: &SpacePath,
    target: &LocalEnd,
    args: &CopyArgs,
    context: &Context,
) -> Result<(), CommandError> {
    let path = match target {
        LocalEnd::Stdio => {
            nothing_else_on_stdout(args)?;
            None
        }
        LocalEnd::Path(path) => Some(local::target(path, super::file_name(&source.path))?),
    };
    let space = commands::airlock()?.space(&source.name).await?;
    let progress = Arc::new(Progress::bytes(context.out, None));
    let target = match &path {
        Some(path) => Target::from(path.clone()),
        None => Target::writer(tokio::io::stdout()),
    };
    let receipt = space
        .download(GuestPath::new(source.path.as_bytes()), target)
        .fsync(args.fsync)
        .sha256(args.sha256)
        .progress(super::bar(&progress))
        .cancel(context.cancel.clone())
        .run()
        .await
        .map_err(|error| {
            if path.is_none() && is_closed_pipe(&error) {
                // Whoever read it has enough; but it is not all there, so it is no success.
                return CommandError::silent(Exit::Failure.code());
            }
            error.into()
        })?;
    drop(progress);
    let transfer = Transfer {
        direction: Direction::Download,
        space: &source.name,
        local_name: path
            .as_ref()
            .map_or(OsStr::new("-"), |path| path.as_os_str()),
    };
    super::report(&transfer, &receipt, args, context)
}

/// Whether the error comes from a pipe that nobody reads any more.
fn is_closed_pipe(error: &airlock::Error) -> bool {
    let mut cause: Option<&dyn StdError> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind() == io::ErrorKind::BrokenPipe;
        }
        cause = error.source();
    }
    false
}

/// Standard output carries the file; nothing else fits in there.
fn nothing_else_on_stdout(args: &CopyArgs) -> Result<(), CommandError> {
    let flag = match (args.json, args.sha256, args.fsync) {
        (true, _, _) => "--json",
        (false, true, _) => "--sha256",
        (false, false, true) => "--fsync",
        (false, false, false) => return Ok(()),
    };
    let message = format!("{flag} does not go with the destination -, standard output");
    Err(CommandError::new(Exit::Usage, message).hint("name a file as the destination"))
}
