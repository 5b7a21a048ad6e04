//! `airlock cp`: from words to a plan, then to one transfer.
//!
//! Everything that can be known here is checked before the Space is spoken to.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use airlock::Receipt;

use crate::args::copy::CopyArgs;
use crate::commands::Context;
use crate::endpoint::{self, Copy};
use crate::exit::{CommandError, Exit};
use crate::output::{self, human_bytes};
use crate::progress::Progress;

mod download;
mod local;
mod receipt;
mod upload;

/// Below this a rate says more about the round trip than about the lane.
const RATE_FROM_BYTES: u64 = 1024 * 1024;

/// Copies one file.
pub(crate) async fn run(args: CopyArgs, context: &Context) -> Result<(), CommandError> {
    let exists = |path: &Path| path.symlink_metadata().is_ok();
    let copy = endpoint::parse(&args.source, &args.target, exists)
        .map_err(|error| CommandError::from_error(Exit::Usage, &error).with_hints(error.hints()))?;
    match copy {
        Copy::Upload { source, target } => upload::run(&source, &target, &args, context).await,
        Copy::Download { source, target } => download::run(&source, &target, &args, context).await,
    }
}

/// Tells how a transfer went: on stdout what was asked for, on stderr what is nice to know.
fn report(
    transfer: &receipt::Transfer<'_>,
    receipt: &Receipt,
    args: &CopyArgs,
    context: &Context,
) -> Result<(), CommandError> {
    if let Some(reason) = &receipt.route_reason {
        context
            .out
            .detail(&format!("route {}: {reason}", receipt.route));
    }
    let rate = if receipt.bytes >= RATE_FROM_BYTES {
        let mib_s = receipt::mib_s(receipt.bytes, receipt.elapsed);
        format!(" ({mib_s:.1} MiB/s)")
    } else {
        String::new()
    };
    context.out.note(&format!(
        "{} in {:.2} s{rate}, verified, by the {} route",
        human_bytes(receipt.bytes),
        receipt.elapsed.as_secs_f64(),
        receipt.route
    ));
    if args.json {
        return output::json(&receipt::Json::new(transfer, receipt));
    }
    match &receipt.sha256 {
        Some(digest) => {
            let line = receipt::sha256sum_line(&digest.to_string(), transfer.local_name);
            output::bytes(&line)
        }
        None => Ok(()),
    }
}

/// A callback that moves a bar.
fn bar(progress: &Arc<Progress>) -> impl FnMut(airlock::Progress) + Send + use<> {
    let progress = Arc::clone(progress);
    move |step| progress.set(step.bytes, step.total)
}

/// The last part of a path, unless it names no file (`/`, `.`, `..`, or a slash at the end).
fn file_name(path: &OsStr) -> Option<&OsStr> {
    let bytes = path.as_bytes();
    let start = bytes
        .iter()
        .rposition(|&byte| byte == b'/')
        .map_or(0, |at| at + 1);
    match &bytes[start..] {
        b"" | b"." | b".." => None,
        name => Some(OsStr::from_bytes(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_a_path_is_its_name() {
        for (path, name) in [
            ("/a/b", Some("b")),
            ("b", Some("b")),
            ("a/.b", Some(".b")),
            ("a/...", Some("...")),
            ("a/", None),
            ("/", None),
            ("", None),
            (".", None),
            ("a/..", None),
        ] {
            assert_eq!(file_name(OsStr::new(path)), name.map(OsStr::new), "{path}");
        }
    }
}
