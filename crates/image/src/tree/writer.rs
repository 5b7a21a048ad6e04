//! Writes the files of a tree, and nothing else, whatever an image says.
//!
//! An image is hostile. Every path is a [`TreePath`]; every folder on the way is opened from its
//! parent's descriptor without following a link, so a link that the image made is never walked
//! through, and no path is ever resolved by the kernel from the host's root. Files are made anew
//! (`O_EXCL`): writing to something that exists cannot happen.
//!
//! Folders are open to their maker alone until [`TreeWriter::finish`] gives them the mode, owner
//! and time that they should have. Devices and sockets are left out: a Space has its own `/dev`.
//! Extended attributes are left out, too: file capabilities would need the id map of the Space.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fstatvfs, linkat, mkdirat, mknodat, openat, statat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use crate::tree::TreeError;
use crate::tree::owner::{Ownership, RecordedOwner};
use crate::tree::path::TreePath;
use crate::tree::remove;

mod dress;

#[cfg(test)]
mod tests;

/// More than any image has; each takes an inode of the host.
const MAX_FILES: u64 = 4_000_000;

/// Left free on the disk, so that an image that unpacks without end does not take the host down.
const RESERVE_BYTES: u64 = 64 << 20;

/// What a file without content takes: a folder has a block of its own.
const FILE_BYTES: u64 = 4096;

/// How much is written between two looks at the free space.
const SPACE_CHECK_BYTES: u64 = 16 << 20;

const BUFFER_BYTES: usize = 256 << 10;
const OPEN_FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Folders that a runtime mounts over or that programs expect, made where an image has none.
const USUAL_FOLDERS: [(&str, u32); 9] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/tmp", 0o1777),
];

/// What a file has besides its content, as the image says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Permission bits with set-user-id, set-group-id and sticky.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Seconds and nanoseconds of the last change; `None` leaves the time of the unpacking.
    pub(crate) modified: Option<(i64, u32)>,
}

impl Meta {
    /// Something of root's, as our own images have it.
    pub(crate) fn of_root(mode: u32) -> Self {
        Self {
            mode,
            uid: 0,
            gid: 0,
            modified: Some((0, 0)),
        }
    }
}

/// What was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Files of all kinds, folders included.
    pub(crate) files: u64,
    /// Their content.
    pub(crate) bytes: u64,
    /// Devices and sockets left out.
    pub(crate) skipped: u64,
    /// Files whose owner has no place in the Space's id map.
    pub(crate) foreign_owners: u64,
}

/// The writer of one tree.
pub(crate) struct TreeWriter<'a> {
    ownership: Ownership,
    cancel: &'a CancellationToken,
    root: OwnedFd,
    /// The folder written to last: names from the root, each with its descriptor.
    cursor: Vec<(OsString, OwnedFd)>,
    folders: BTreeMap<TreePath, Meta>,
    /// What the current layer wrote, with all folders above.
    layer: HashSet<TreePath>,
    owners: Vec<RecordedOwner>,
    totals: Totals,
    unchecked_bytes: u64,
    buffer: Vec<u8>,
}

impl<'a> TreeWriter<'a> {
    /// A writer into the empty folder `root`.
    pub(crate) fn new(
        root: &Path,
        ownership: Ownership,
        cancel: &'a CancellationToken,
    ) -> Result<Self, TreeError> {
        let root = openat(CWD, root, OPEN_FOLDER, Mode::empty()).map_err(io::Error::from)?;
        let mut writer = Self {
            ownership,
            cancel,
            root,
            cursor: Vec::new(),
            folders: BTreeMap::new(),
            layer: HashSet::new(),
            owners: Vec::new(),
            totals: Totals::default(),
            unchecked_bytes: SPACE_CHECK_BYTES,
            buffer: vec![0; BUFFER_BYTES],
        };
        writer
            .folders
            .insert(TreePath::default(), Meta::of_root(0o755));
        Ok(writer)
    }

    /// From here on whiteouts apply to what was written before.
    pub(crate) fn begin_layer(&mut self) {
        self.layer.clear();
    }

    /// How many files there are so far.
    pub(crate) fn files(&self) -> u64 {
        self.totals.files
    }

    /// Adds a folder; one that is there keeps its content and gets this mode, owner and time.
    pub(crate) fn folder(&mut self, path: &TreePath, meta: Meta) -> Result<(), TreeError> {
        self.count(path)?;
        if let Some((parent, name)) = path.split() {
            self.enter(&parent, path)?;
            self.make_folder(path, &name)?;
        }
        self.folders.insert(path.clone(), meta);
        Ok(())
    }

    /// Adds a regular file with what `content` gives and says how much that was; a failure to
    /// read is passed to `unread`.
    pub(crate) fn file(
        &mut self,
        path: &TreePath,
        meta: Meta,
        content: &mut dyn Read,
        unread: &dyn Fn(io::Error) -> TreeError,
    ) -> Result<u64, TreeError> {
        let failed = |source| write_failed(path, source);
        let name = self.make_room(path)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(self.here(), &name, flags, Mode::from_raw_mode(0o600))
            .map_err(|errno| failed(errno.into()))?;
        let mut file = File::from(file);
        let mut written = 0;
        loop {
            self.check_cancelled()?;
            let bytes = match content.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(unread(error)),
            };
            self.check_space(bytes as u64).map_err(failed)?;
            file.write_all(&self.buffer[..bytes]).map_err(failed)?;
            written += bytes as u64;
        }
        self.totals.bytes += written;
        self.dress(&file, meta, false).map_err(failed)?;
        Ok(written)
    }

    /// Adds a symbolic link; what it leads to is text and is never looked at.
    pub(crate) fn link(
        &mut self,
        path: &TreePath,
        meta: Meta,
        target: &OsStr,
    ) -> Result<(), TreeError> {
        let name = self.make_room(path)?;
        let failed = |errno: Errno| write_failed(path, errno.into());
        symlinkat(target, self.here(), &name).map_err(failed)?;
        self.dress_name(&name, meta, None).map_err(failed)
    }

    /// Adds another name of the file or symbolic link `target`.
    pub(crate) fn hard_link(
        &mut self,
        path: &TreePath,
        target: &TreePath,
    ) -> Result<(), TreeError> {
        let bad = || TreeError::BadHardLink {
            path: path.to_string(),
            target: target.to_string(),
        };
        let (target_folder, target_name) = target.split().ok_or_else(bad)?;
        if target == path || path.holds(target) {
            return Err(bad());
        }
        self.enter(&target_folder, path)?;
        let from = self.here().try_clone_to_owned()?;
        match statat(&from, &target_name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if !FileType::from_raw_mode(stat.st_mode).is_dir() => {}
            Ok(_) | Err(Errno::NOENT) => return Err(bad()),
            Err(errno) => return Err(write_failed(target, errno.into())),
        }
        let name = self.make_room(path)?;
        linkat(&from, &target_name, self.here(), &name, AtFlags::empty())
            .map_err(|errno| write_failed(path, errno.into()))
    }

    /// Adds a named pipe.
    pub(crate) fn fifo(&mut self, path: &TreePath, meta: Meta) -> Result<(), TreeError> {
        let name = self.make_room(path)?;
        let failed = |errno: Errno| write_failed(path, errno.into());
        let mode = Mode::from_raw_mode(0o600);
        mknodat(self.here(), &name, FileType::Fifo, mode, 0).map_err(failed)?;
        let mode = Mode::from_raw_mode(meta.mode & 0o7777);
        self.dress_name(&name, meta, Some(mode)).map_err(failed)
    }

    /// Leaves a device or a socket out; what a layer below has in its place goes.
    pub(crate) fn skip(&mut self, path: &TreePath) -> Result<(), TreeError> {
        self.totals.skipped += 1;
        if path.is_root() {
            return Ok(());
        }
        self.make_room(path).map(drop)
    }

    /// A whiteout: takes away what the layers below have at `path`.
    pub(crate) fn hide(&mut self, path: &TreePath) -> Result<(), TreeError> {
        self.check_cancelled()?;
        let Some((parent, name)) = path.split() else {
            return self.hide_content(path);
        };
        match self.kind_of(&parent, &name, path)? {
            None => Ok(()),
            Some(FileType::Directory) if self.layer.contains(path) => self.hide_content(path),
            Some(_) if self.layer.contains(path) => Ok(()),
            Some(_) => self.remove(path, &name),
        }
    }

    /// An opaque whiteout: takes away all that the layers below have in the folder `path`.
    pub(crate) fn hide_content(&mut self, path: &TreePath) -> Result<(), TreeError> {
        if let Some((parent, name)) = path.split()
            && self.kind_of(&parent, &name, path)? != Some(FileType::Directory)
        {
            return Ok(());
        }
        self.enter(path, path)?;
        let names = remove::names(self.here()).map_err(|source| write_failed(path, source))?;
        for name in names {
            self.hide(&path.child(name.as_encoded_bytes())?)?;
        }
        Ok(())
    }

    /// Adds the usual folders, gives all folders their mode, owner and time, and ends.
    pub(crate) fn finish(mut self) -> Result<(Totals, Vec<RecordedOwner>), TreeError> {
        for (text, mode) in USUAL_FOLDERS {
            let path = TreePath::parse(text.as_bytes())?;
            let (parent, name) = path.split().unwrap_or_default();
            // Whatever an image has there, such as a link to another folder, is its own matter;
            // so is a parent that is no folder.
            let free = match self.kind_of(&parent, &name, &path) {
                Ok(found) => found.is_none(),
                Err(TreeError::NotBelowFolder { .. }) => false,
                Err(error) => return Err(error),
            };
            if free {
                self.folder(&path, Meta::of_root(mode))?;
            }
        }
        // What is below comes first: a folder that is closed cannot be entered any more.
        for (path, meta) in std::mem::take(&mut self.folders).into_iter().rev() {
            self.enter(&path, &path)?;
            let folder = self.here().try_clone_to_owned()?;
            self.dress(folder, meta, true)
                .map_err(|source| write_failed(&path, source))?;
        }
        Ok((self.totals, self.owners))
    }

    /// Fails if the unpacking was cancelled.
    pub(crate) fn check_cancelled(&self) -> Result<(), TreeError> {
        if self.cancel.is_cancelled() {
            Err(TreeError::Cancelled)
        } else {
            Ok(())
        }
    }

    fn count(&mut self, path: &TreePath) -> Result<(), TreeError> {
        self.check_cancelled()?;
        self.totals.files += 1;
        if self.totals.files > MAX_FILES {
            return Err(TreeError::TooManyFiles { limit: MAX_FILES });
        }
        self.check_space(FILE_BYTES)
            .map_err(|source| write_failed(path, source))?;
        let mut path = Some(path.clone());
        while let Some(each) = path {
            path = each.split().map(|(parent, _)| parent);
            if !self.layer.insert(each) {
                break;
            }
        }
        Ok(())
    }

    fn check_space(&mut self, bytes: u64) -> io::Result<()> {
        self.unchecked_bytes += bytes;
        if self.unchecked_bytes >= SPACE_CHECK_BYTES {
            self.unchecked_bytes = 0;
            let disk = fstatvfs(&self.root)?;
            if disk.f_bavail.saturating_mul(disk.f_frsize) < RESERVE_BYTES {
                return Err(Errno::NOSPC.into());
            }
        }
        Ok(())
    }

    /// The folder entered last.
    fn here(&self) -> BorrowedFd<'_> {
        self.cursor
            .last()
            .map_or_else(|| self.root.as_fd(), |(_, fd)| fd.as_fd())
    }

    /// Goes to a folder, making what is missing on the way, for the sake of `path`.
    fn enter(&mut self, folder: &TreePath, path: &TreePath) -> Result<(), TreeError> {
        let same = self
            .cursor
            .iter()
            .zip(folder.parts())
            .take_while(|((name, _), part)| name.as_os_str() == *part)
            .count();
        self.cursor.truncate(same);
        for (depth, part) in folder.parts().enumerate().skip(same) {
            let opened = match openat(self.here(), part, OPEN_FOLDER, Mode::empty()) {
                Err(Errno::NOENT) => {
                    let parent = ancestor(folder, depth + 1)?;
                    self.folders.insert(parent.clone(), Meta::of_root(0o755));
                    self.totals.files += 1;
                    mkdirat(self.here(), part, Mode::RWXU)
                        .and_then(|()| openat(self.here(), part, OPEN_FOLDER, Mode::empty()))
                        .map_err(|errno| write_failed(&parent, errno.into()))?
                }
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    return Err(TreeError::NotBelowFolder {
                        path: path.to_string(),
                        parent: ancestor(folder, depth + 1)?.to_string(),
                    });
                }
                opened => opened.map_err(|errno| write_failed(path, errno.into()))?,
            };
            self.cursor.push((part.to_owned(), opened));
        }
        Ok(())
    }

    /// What is at `parent/name`, without making anything; leaves the writer in the parent.
    fn kind_of(
        &mut self,
        parent: &TreePath,
        name: &OsStr,
        path: &TreePath,
    ) -> Result<Option<FileType>, TreeError> {
        // Whiteouts may name what no layer has, in folders that no layer has.
        for depth in 1..=parent.parts().count() {
            let above = ancestor(parent, depth)?;
            let (folder, name) = above.split().unwrap_or_default();
            self.enter(&folder, path)?;
            if statat(self.here(), &name, AtFlags::SYMLINK_NOFOLLOW).is_err() {
                return Ok(None);
            }
        }
        self.enter(parent, path)?;
        match statat(self.here(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(write_failed(path, errno.into())),
        }
    }

    fn make_folder(&mut self, path: &TreePath, name: &OsStr) -> Result<(), TreeError> {
        let failed = |errno: Errno| write_failed(path, errno.into());
        match mkdirat(self.here(), name, Mode::RWXU) {
            Err(Errno::EXIST) => {
                let stat = statat(self.here(), name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
                if FileType::from_raw_mode(stat.st_mode).is_dir() {
                    return Ok(());
                }
                unlinkat(self.here(), name, AtFlags::empty())
                    .and_then(|()| mkdirat(self.here(), name, Mode::RWXU))
                    .map_err(failed)
            }
            made => made.map_err(failed),
        }
    }

    /// Goes to the folder of a new file and removes what has its name.
    fn make_room(&mut self, path: &TreePath) -> Result<OsString, TreeError> {
        self.count(path)?;
        let (parent, name) = path.split().ok_or_else(|| TreeError::BadPath {
            path: path.to_string(),
            problem: "is the root, which must be a folder",
        })?;
        self.enter(&parent, path)?;
        match statat(self.here(), &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Ok(_) => self.remove(path, &name)?,
            Err(errno) => return Err(write_failed(path, errno.into())),
        }
        Ok(name)
    }

    /// Removes `path`, which is `name` in the folder entered last, and all below.
    fn remove(&mut self, path: &TreePath, name: &OsStr) -> Result<(), TreeError> {
        let gone: Vec<TreePath> = self
            .folders
            .range(path.clone()..)
            .map(|(folder, _)| folder)
            .take_while(|folder| path.holds(folder))
            .cloned()
            .collect();
        for folder in gone {
            self.folders.remove(&folder);
        }
        remove::beneath(self.here(), name).map_err(|source| write_failed(path, source))
    }
}

fn ancestor(path: &TreePath, depth: usize) -> Result<TreePath, TreeError> {
    let parts: Vec<&[u8]> = path
        .parts()
        .take(depth)
        .map(OsStr::as_encoded_bytes)
        .collect();
    TreePath::parse(&parts.join(&b'/'))
}

fn write_failed(path: &TreePath, source: io::Error) -> TreeError {
    TreeError::Write {
        path: path.to_string(),
        source,
    }
}
