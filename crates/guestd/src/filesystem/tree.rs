//! Folders made, entries moved and removed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use airlock_wire::cua::v1::{MakeDirRequest, MoveRequest, RemoveRequest};
use airlock_wire::{Fault, FaultKind};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::paths::escape_path;
use crate::publish::{self, PendingFile, PublishOptions};

/// Mode of a folder that asks for none.
const DEFAULT_MODE: u32 = 0o755;

/// Makes a folder; says whether it is new.
pub(super) fn make_dir(
    path: &Path,
    request: &MakeDirRequest,
    owner: Option<(u32, u32)>,
) -> Result<bool, Fault> {
    let mode = match request.mode & 0o7777 {
        0 => DEFAULT_MODE,
        mode => mode,
    };
    if !request.parents {
        return match publish::make_dir(path, mode, owner) {
            Ok(()) => Ok(true),
            Err(errno) => Err(Fault::from_io(escape_path(path), &errno.into())),
        };
    }
    if let Some(parent) = path.parent() {
        publish::make_dirs(parent, DEFAULT_MODE, owner)?;
    }
    Ok(publish::make_dirs(path, mode, owner)?)
}

/// Gives an entry another name. Only files cross file systems.
pub(super) fn rename(
    source: &Path,
    destination: &Path,
    request: &MoveRequest,
    owner: Option<(u32, u32)>,
) -> Result<(), Fault> {
    if request.create_parents
        && let Some(parent) = destination.parent()
    {
        publish::make_dirs(parent, DEFAULT_MODE, owner)?;
    }
    // Names which of the two is missing, which the kernel's answer does not.
    let metadata = source
        .symlink_metadata()
        .map_err(|error| Fault::from_io(escape_path(source), &error))?;
    let flags = if request.overwrite {
        RenameFlags::empty()
    } else {
        RenameFlags::NOREPLACE
    };
    match renameat_with(CWD, source, CWD, destination, flags) {
        Ok(()) => Ok(()),
        Err(Errno::XDEV) if metadata.is_file() => {
            copy_over(source, destination, &metadata, !request.overwrite)
        }
        Err(Errno::XDEV) => {
            let message = format!(
                "{} and {} are on different file systems, between which only files are moved",
                escape_path(source),
                escape_path(destination)
            );
            Err(Fault::new(FaultKind::InvalidArgument, message))
        }
        Err(errno) => {
            let paths = format!("{} -> {}", escape_path(source), escape_path(destination));
            Err(Fault::from_io(paths, &errno.into()))
        }
    }
}

/// Moves a file to another file system: a whole copy first, then the source goes.
fn copy_over(
    source: &Path,
    destination: &Path,
    metadata: &fs::Metadata,
    create_new: bool,
) -> Result<(), Fault> {
    let at = |path: &Path| {
        let path = escape_path(path);
        move |error: io::Error| Fault::from_io(path, &error)
    };
    let options = PublishOptions {
        create_new,
        mode: Some(metadata.mode()),
        mtime_ns: Some(metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec()),
        uid: Some(metadata.uid()),
        gid: Some(metadata.gid()),
        ..PublishOptions::default()
    };
    let mut from = fs::File::open(source).map_err(at(source))?;
    let pending = PendingFile::create(destination, options)?;
    io::copy(&mut from, &mut pending.file()).map_err(at(destination))?;
    pending.publish()?;
    fs::remove_file(source).map_err(at(source))
}

/// Removes an entry. Links are removed, never followed.
pub(super) fn remove(path: &Path, request: &RemoveRequest) -> Result<(), Fault> {
    let removed = path.symlink_metadata().and_then(|metadata| {
        if !metadata.is_dir() {
            fs::remove_file(path)
        } else if request.recursive {
            fs::remove_dir_all(path)
        } else {
            fs::remove_dir(path)
        }
    });
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound && request.missing_ok => Ok(()),
        Err(error) => Err(Fault::from_io(escape_path(path), &error)),
        Ok(()) => Ok(()),
    }
}
