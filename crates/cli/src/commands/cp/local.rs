//! The local side of a copy, looked at before the Space is spoken to.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::exit::{CommandError, Exit};

/// Looks at what is to be read, so that a mistake costs no connection.
pub(super) fn check_source(path: &Path) -> Result<(), CommandError> {
    let failed = |error: io::Error| CommandError::from_io("read", path, &error);
    let metadata = path.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(no_trees(
            &path.display().to_string(),
            "go by tar: tar -cf - -C FOLDER . | airlock exec NAME -- tar -xf - -C /where",
        ));
    }
    if metadata.is_file() {
        // Anything else is opened once alone: a pipe would notice.
        File::open(path).map_err(failed)?;
    }
    Ok(())
}

/// What `cp` of a folder says: never a silent part of it.
pub(super) fn no_trees(what: &str, hint: &str) -> CommandError {
    let message = format!("{what} is a folder, and only files are copied yet");
    CommandError::new(Exit::Unsupported, message).hint(hint)
}

/// The path that a download gets, by the rule of `cp`: a folder takes the file under its own name.
pub(super) fn target(path: &Path, source_name: Option<&OsStr>) -> Result<PathBuf, CommandError> {
    let must_be_folder = path.as_os_str().as_bytes().ends_with(b"/");
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => match source_name {
            Some(name) => file_target(path.join(name)),
            // The source is a folder too, which the Space will say; or it ends in `/`.
            None => Err(CommandError::new(
                Exit::Usage,
                "the source ends in no file name, so there is none for the destination",
            )),
        },
        Ok(_) => Ok(path.to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && must_be_folder => {
            let message = format!("there is no folder {}", path.display());
            Err(CommandError::new(Exit::NotFound, message)
                .hint("make it first, or leave the / at the end away to name the file"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => missing_target(path),
        Err(error) => Err(CommandError::from_io("write", path, &error)),
    }
}

/// The folder's own entry of that name must not be a folder.
fn file_target(path: PathBuf) -> Result<PathBuf, CommandError> {
    if path.is_dir() {
        let message = format!(
            "{} is a folder, and would have to be replaced",
            path.display()
        );
        return Err(CommandError::new(Exit::Failure, message));
    }
    Ok(path)
}

/// A file that is not there yet needs a folder that is.
fn missing_target(path: &Path) -> Result<PathBuf, CommandError> {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    match parent.metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(path.to_owned()),
        Ok(_) => {
            let message = format!("{} is not a folder", parent.display());
            Err(CommandError::new(Exit::NotFound, message))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let message = format!("there is no folder {}", parent.display());
            Err(CommandError::new(Exit::NotFound, message).hint("make it first"))
        }
        Err(error) => Err(CommandError::from_io("write into", parent, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_source_is_not_found_and_a_folder_is_unsupported() {
        let dir = tempfile::tempdir().unwrap();
        let missing = check_source(&dir.path().join("x")).unwrap_err();
        assert_eq!(missing.code(), Exit::NotFound.code());
        let folder = check_source(dir.path()).unwrap_err();
        assert_eq!(folder.code(), Exit::Unsupported.code());
        assert!(folder.hints()[0].contains("tar"));
        let file = dir.path().join("y");
        std::fs::write(&file, "y").unwrap();
        assert_eq!(check_source(&file), Ok(()));
        assert_eq!(check_source(Path::new("/dev/null")), Ok(()));
    }

    #[test]
    fn targets_follow_the_rule() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("folder")).unwrap();
        std::fs::create_dir(at("folder/taken")).unwrap();
        std::fs::write(at("file"), "x").unwrap();
        let name = Some(OsStr::new("f"));
        let found = |path: &str| target(&at(path), name).map_err(|error| error.code());
        assert_eq!(found("new"), Ok(at("new")));
        assert_eq!(found("file"), Ok(at("file")));
        assert_eq!(found("folder"), Ok(at("folder/f")));
        assert_eq!(found("folder/"), Ok(at("folder/f")));
        assert_eq!(found("new/"), Err(3));
        assert_eq!(found("file/"), Err(3));
        assert_eq!(found("none/new"), Err(3));
        assert_eq!(found("file/new"), Err(3));
        let folder_of_that_name = target(&at("folder"), Some(OsStr::new("taken")));
        assert_eq!(folder_of_that_name.unwrap_err().code(), 1);
        assert_eq!(target(&at("folder"), None).unwrap_err().code(), 2);
    }
}
