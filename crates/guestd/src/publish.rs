//! Files that appear whole or not at all.
//!
//! A [`PendingFile`] has no name, or a temporary one, until [`PendingFile::publish`] puts it in
//! its place by one rename; until then the old file is untouched, and dropping the pending file
//! removes every trace. Where the file system knows nameless files (`O_TMPFILE`: ext4, XFS, tmpfs,
//! Btrfs) a killed guestd leaves nothing behind either; elsewhere the name is
//! `.airlock-XXXXXXXX.part` next to the destination, and a killed guestd leaves that.
//!
//! The destination's folder is opened once and everything happens relative to that handle, so
//! whoever swaps a folder for a link meanwhile redirects nothing.

mod folders;
mod place;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use airlock_wire::{Fault, FaultKind};
use rustix::fs::{self, AtFlags, Gid, Mode, RenameFlags, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;

use self::place::{Old, Place};

pub(crate) use self::folders::make_dir;
pub use self::folders::make_dirs;

/// Why a file was not published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The caller wanted a new file.
    #[error("{} exists already", path.display())]
    Exists {
        /// The destination.
        path: PathBuf,
    },
    /// The destination is a folder.
    #[error("{} is a directory", path.display())]
    IsDirectory {
        /// The destination.
        path: PathBuf,
    },
    /// The destination ends in a slash, or something on the way to it is no folder.
    #[error("{} is not a directory", path.display())]
    NotADirectory {
        /// What was taken for a folder.
        path: PathBuf,
    },
    /// The destination is a device, a pipe or a socket, which a rename would destroy.
    #[error("{} is not a regular file", path.display())]
    NotRegular {
        /// The destination.
        path: PathBuf,
    },
    /// A rename cannot replace a mount point.
    #[error("{} is a mount point, which cannot be replaced", path.display())]
    MountPoint {
        /// The destination.
        path: PathBuf,
    },
    /// Links at the end of the path lead in a circle.
    #[error("{}: too many levels of symbolic links", path.display())]
    LinkLoop {
        /// The destination.
        path: PathBuf,
    },
    /// The system said no.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// What was tried.
        step: &'static str,
        /// The path it was tried on.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl PublishError {
    fn io(step: &'static str, path: &Path, errno: Errno) -> Self {
        Self::Io {
            step,
            path: path.to_owned(),
            source: errno.into(),
        }
    }
}

impl From<PublishError> for Fault {
    fn from(error: PublishError) -> Self {
        let kind = match &error {
            PublishError::Exists { .. } => FaultKind::PathExists,
            PublishError::IsDirectory { .. } => FaultKind::IsADirectory,
            PublishError::NotADirectory { .. } => FaultKind::NotADirectory,
            PublishError::NotRegular { .. }
            | PublishError::MountPoint { .. }
            | PublishError::LinkLoop { .. } => FaultKind::InvalidArgument,
            PublishError::Io { path, source, .. } => {
                let fault = Fault::from_io(path.display(), source);
                return Fault::new(fault.kind, format!("{error}: {source}"));
            }
        };
        Fault::new(kind, error.to_string())
    }
}

/// How the finished file shall be.
#[derive(Debug, Clone, Copy, Default)]
pub struct PublishOptions {
    /// Fail when the destination exists, decided by the kernel in one step.
    pub create_new: bool,
    /// Permission bits. Absent: 0644 for a new file, kept for a replaced one.
    pub mode: Option<u32>,
    /// Modification time in nanoseconds since the epoch. Absent: as written.
    pub mtime_ns: Option<i64>,
    /// Owner. Absent: [`Self::new_owner`] for a new file, kept for a replaced one.
    pub uid: Option<u32>,
    /// Group, by the same rule.
    pub gid: Option<u32>,
    /// Owner and group of a new file and of folders made for it. Absent: guestd's own.
    pub new_owner: Option<(u32, u32)>,
    /// Reach the disk, file and folder, before the call returns.
    pub fsync: bool,
    /// Make missing parent folders (0755).
    pub create_parents: bool,
}

/// Where a file was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The path, links at its end followed.
    pub path: PathBuf,
    /// A file was there before.
    pub replaced: bool,
}

/// A file under way to its place.
#[derive(Debug)]
pub struct PendingFile {
    place: Place,
    file: File,
    /// The temporary name, when it has one.
    temporary: Option<OsString>,
    options: PublishOptions,
}

impl PendingFile {
    /// Opens an empty file that will become `dest`.
    ///
    /// What can be known now is refused now: a destination that is a folder, a device or a mount
    /// point, a missing parent, an existing file where a new one is wanted.
    pub fn create(dest: &Path, options: PublishOptions) -> Result<Self, PublishError> {
        let place = Place::find(dest, &options)?;
        let (file, temporary) = match place.nameless() {
            Some(file) => (file, None),
            None => place.named()?,
        };
        Ok(Self {
            place,
            file,
            temporary,
            options,
        })
    }

    /// The same on a file system without nameless files.
    #[cfg(test)]
    pub(crate) fn create_named(dest: &Path, options: PublishOptions) -> Result<Self, PublishError> {
        let place = Place::find(dest, &options)?;
        let (file, temporary) = place.named()?;
        Ok(Self {
            place,
            file,
            temporary,
            options,
        })
    }

    /// The open file, for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where the file will be.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// Puts the file in its place.
    pub fn publish(mut self) -> Result<Published, PublishError> {
        let old = self.place.look()?;
        if old.is_some() && self.options.create_new {
            return Err(self.place.exists());
        }
        self.dress(old.as_ref())?;
        if self.options.fsync {
            fs::fsync(&self.file).map_err(|e| self.place.error("sync", e))?;
        }
        let replaced = self.put(old.is_some())?;
        if self.options.fsync {
            self.place.sync_dir()?;
        }
        Ok(Published {
            path: std::mem::take(&mut self.place.path),
            replaced,
        })
    }

    /// Sets owner, mode and time, in this order: a change of owner clears mode bits.
    fn dress(&self, old: Option<&Old>) -> Result<(), PublishError> {
        let options = &self.options;
        let now = fs::fstat(&self.file).map_err(|e| self.place.error("stat", e))?;
        let default = match (old, options.new_owner) {
            (Some(old), _) => (old.uid, old.gid),
            (None, Some(owner)) => owner,
            (None, None) => (now.st_uid, now.st_gid),
        };
        let asked = options.uid.is_some() || options.gid.is_some();
        let uid = options.uid.unwrap_or(default.0);
        let gid = options.gid.unwrap_or(default.1);
        if (uid, gid) != (now.st_uid, now.st_gid) {
            let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            match fs::fchown(&self.file, owner.0, owner.1) {
                // Without root the old owner cannot be kept; what was asked for must hold.
                Err(Errno::PERM | Errno::INVAL) if !asked => {}
                result => result.map_err(|e| self.place.error("set the owner of", e))?,
            }
        }
        let mode = options.mode.or(old.map(|old| old.mode)).unwrap_or(0o644);
        fs::fchmod(&self.file, Mode::from_raw_mode(mode & 0o7777))
            .map_err(|e| self.place.error("set the mode of", e))?;
        if let Some(mtime_ns) = options.mtime_ns {
            fs::futimens(&self.file, &mtime(mtime_ns))
                .map_err(|e| self.place.error("set the time of", e))?;
        }
        Ok(())
    }

    /// Gives the file its name; says whether it took another's place.
    fn put(&mut self, expect_old: bool) -> Result<bool, PublishError> {
        let place = &self.place;
        let Some(temporary) = &self.temporary else {
            if !expect_old || self.options.create_new {
                match place.link(&self.file, &place.name) {
                    Err(Errno::EXIST) if self.options.create_new => return Err(place.exists()),
                    Err(Errno::EXIST) => {}
                    result => {
                        result.map_err(|e| place.error("name", e))?;
                        return Ok(false);
                    }
                }
            }
            let temporary = place
                .with_temporary_name(|name| place.link(&self.file, name))?
                .1;
            self.temporary = Some(temporary);
            return self.put(true);
        };
        let flags = if self.options.create_new {
            RenameFlags::NOREPLACE
        } else {
            RenameFlags::empty()
        };
        let renamed = fs::renameat_with(&place.dir, temporary, &place.dir, &place.name, flags);
        let renamed = match renamed {
            // The file system knows no such flag: a link fails just as well when the name is taken.
            Err(Errno::INVAL | Errno::NOSYS) if self.options.create_new => {
                let flags = AtFlags::empty();
                fs::linkat(&place.dir, temporary, &place.dir, &place.name, flags)
                    .and_then(|()| fs::unlinkat(&place.dir, temporary, AtFlags::empty()))
            }
            other => other,
        };
        match renamed {
            Err(Errno::EXIST) => return Err(place.exists()),
            Err(Errno::BUSY) => {
                return Err(PublishError::MountPoint {
                    path: place.path.clone(),
                });
            }
            Err(Errno::ISDIR) => {
                return Err(PublishError::IsDirectory {
                    path: place.path.clone(),
                });
            }
            result => result.map_err(|e| place.error("replace", e))?,
        }
        self.temporary = None;
        Ok(expect_old)
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary {
            // Nothing can be done about a failure here, and nobody waits for it.
            let _ = fs::unlinkat(&self.place.dir, name, AtFlags::empty());
        }
    }
}

fn mtime(mtime_ns: i64) -> Timestamps {
    let second = 1_000_000_000;
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: mtime_ns.div_euclid(second),
            tv_nsec: mtime_ns.rem_euclid(second),
        },
    }
}

#[cfg(test)]
mod tests;
