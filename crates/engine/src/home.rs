//! Preparing `AIRLOCK_HOME`, and sweeping what the dead left in it.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;

use airlock_model::HomePaths;
use airlock_model::home::TRASH_PREFIX;
use rustix::fs::FlockOperation;

use crate::{Engine, EngineError};

/// Prefix of a Space's folder while it is being made.
pub(crate) const NEW_PREFIX: &str = ".new-";
/// File in a folder being made that its maker holds a lock on.
pub(crate) const MAKER_LOCK: &str = "maker.lock";

/// `$AIRLOCK_HOME`, or `~/.airlock`.
pub(crate) fn default_home() -> Result<PathBuf, EngineError> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    match set("AIRLOCK_HOME") {
        Some(home) => Ok(home),
        None => Ok(set("HOME").ok_or(EngineError::NoHome)?.join(".airlock")),
    }
}

/// Makes the home's folders, private to the user, and returns its absolute paths.
pub(crate) fn prepare(home: &std::path::Path) -> Result<HomePaths, EngineError> {
    make_private(home)?;
    let absolute = fs_err::canonicalize(home).map_err(EngineError::file("use", home))?;
    let metadata = fs_err::metadata(&absolute).map_err(EngineError::file("use", &absolute))?;
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own {
        return Err(EngineError::ForeignHome {
            path: absolute,
            owner: metadata.uid(),
        });
    }
    let paths = HomePaths::new(absolute);
    for folder in [paths.spaces(), paths.images(), paths.cache()] {
        make_private(&folder)?;
    }
    Ok(paths)
}

fn make_private(folder: &std::path::Path) -> Result<(), EngineError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
        .create(folder)
        .map_err(EngineError::file("make the folder", folder))?;
    let metadata = fs_err::metadata(folder).map_err(EngineError::file("use", folder))?;
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() == own && metadata.permissions().mode() & 0o077 != 0 {
        // Names, consoles and sockets of Spaces are nobody else's business.
        fs_err::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
            .map_err(EngineError::file("make private", folder))?;
    }
    Ok(())
}

impl Engine {
    /// Removes folders of Spaces that were being made or removed by a process that is gone.
    ///
    /// Best effort: what cannot be removed now is tried again next time.
    pub(crate) fn sweep(&self) {
        let Ok(entries) = fs_err::read_dir(self.home.spaces()) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let dead = name.starts_with(TRASH_PREFIX)
                || (name.starts_with(NEW_PREFIX) && maker_is_gone(&entry.path()));
            if dead
                && let Err(error) = crate::mapped::remove(&entry.path())
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::debug!(%error, "cannot sweep");
            }
        }
    }
}

fn maker_is_gone(folder: &std::path::Path) -> bool {
    let lock = std::fs::File::options()
        .write(true)
        .open(folder.join(MAKER_LOCK));
    match lock {
        Ok(lock) => rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
        // No lock yet: it is seconds old at most, or its maker died in between. Age decides.
        Err(_) => fs_err::metadata(folder)
            .and_then(|metadata| metadata.modified())
            .ok()
            .and_then(|modified| modified.elapsed().ok())
            .is_some_and(|age| age.as_secs() > 60),
    }
}
