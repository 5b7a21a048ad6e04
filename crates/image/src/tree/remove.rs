//! Removes files of a tree by descriptors, never through a link.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, fchmod, fstat, openat, statat, unlinkat,
};
use rustix::io::Errno;

/// The names in an open folder.
pub(crate) fn names(folder: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Removes `name` of a folder with all below; stops at another file system that is mounted there.
///
/// Folders that an image made unwritable are opened first, which their owner may do.
pub(crate) fn beneath(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let stat = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    if !FileType::from_raw_mode(stat.st_mode).is_dir() {
        return Ok(unlinkat(folder, name, AtFlags::empty())?);
    }
    if stat.st_dev != fstat(folder)?.st_dev {
        let message = format!("{} is a mount point", name.display());
        return Err(io::Error::new(io::ErrorKind::CrossesDevices, message));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inner = match openat(folder, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            // Nobody but us is in a tree that is being removed, so the name is still the folder.
            rustix::fs::chmodat(folder, name, Mode::RWXU, AtFlags::empty())?;
            openat(folder, name, flags, Mode::empty())?
        }
        opened => opened?,
    };
    if !Mode::from_raw_mode(stat.st_mode).contains(Mode::RWXU) {
        fchmod(&inner, Mode::RWXU)?;
    }
    for name in names(inner.as_fd())? {
        beneath(inner.as_fd(), &name)?;
    }
    Ok(unlinkat(folder, name, AtFlags::REMOVEDIR)?)
}

/// Removes a whole tree; one that is not there is fine.
pub(crate) fn tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(CWD, parent, flags, Mode::empty()) {
        Ok(parent) => beneath(parent.as_fd(), name),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
