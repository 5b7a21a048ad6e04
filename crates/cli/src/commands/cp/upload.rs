//! Into a Space.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use airlock::{GuestPath, Source};

use super::local;
use super::receipt::{Direction, Transfer};
use crate::args::copy::CopyArgs;
use crate::commands::{self, Context};
use crate::endpoint::{LocalEnd, SpacePath};
use crate::exit::{CommandError, Exit};
use crate::progress::Progress;

/// Sends one file.
pub(super) async fn run(
    source: &LocalEnd,
    target: &SpacePath,
    args: &CopyArgs,
    context: &Context,
) -> Result<(), CommandError> {
    let (local_name, file_name) = match source {
        LocalEnd::Stdio => (OsStr::new("-"), None),
        LocalEnd::Path(path) => {
            local::check_source(path)?;
            (path.as_os_str(), super::file_name(path.as_os_str()))
        }
    };
    let (path, name_in_folder) = destination(&target.path, file_name)?;
    let source = match source {
        LocalEnd::Stdio => Source::reader(tokio::io::stdin()),
        LocalEnd::Path(path) => Source::from(path.clone()),
    };
    let space = commands::airlock()?.space(&target.name).await?;
    let progress = Arc::new(Progress::bytes(context.out, None));
    let receipt = space
        .upload(source, GuestPath::new(path.as_bytes()))
        .name_in_directory(name_in_folder.as_bytes())
        .fsync(args.fsync)
        .sha256(args.sha256)
        .progress(super::bar(&progress))
        .cancel(context.cancel.clone())
        .run()
        .await?;
    drop(progress);
    let transfer = Transfer {
        direction: Direction::Upload,
        space: &target.name,
        local_name,
    };
    super::report(&transfer, &receipt, args, context)
}

/// The path to write to, and the name to use should it be a folder (empty: that is an error).
///
/// A path that ends in `/` must be a folder, so the name is appended here: if it is none, the
/// Space refuses.
fn destination(
    path: &OsStr,
    file_name: Option<&OsStr>,
) -> Result<(OsString, OsString), CommandError> {
    if !path.as_bytes().ends_with(b"/") {
        return Ok((path.to_owned(), file_name.unwrap_or_default().to_owned()));
    }
    let Some(name) = file_name else {
        let message = "standard input has no name, so the destination cannot be a folder";
        return Err(
            CommandError::new(Exit::Usage, message).hint("name the file: NAME:/folder/file")
        );
    };
    let mut whole = path.to_owned();
    whole.push(name);
    Ok((whole, OsString::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_at_the_end_means_a_folder() {
        let at = |path: &str, name: Option<&str>| {
            destination(OsStr::new(path), name.map(OsStr::new)).map_err(|error| error.code())
        };
        let pair = |path: &str, name: &str| Ok((path.into(), name.into()));
        assert_eq!(at("/a", Some("f")), pair("/a", "f"));
        assert_eq!(at("/a/", Some("f")), pair("/a/f", ""));
        assert_eq!(at("/", Some("f")), pair("/f", ""));
        assert_eq!(at("a", None), pair("a", ""));
        assert_eq!(at("a/", None), Err(2));
    }
}
