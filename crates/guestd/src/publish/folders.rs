//! Folders with exactly the mode that was asked for.

use std::path::Path;

use rustix::fs::{self, FileType, Gid, Mode, Uid};
use rustix::io::Errno;

use super::PublishError;

/// Makes `dir` and every missing folder above it with exactly `mode`, whatever the umask.
///
/// Says whether `dir` itself is new.
pub fn make_dirs(dir: &Path, mode: u32, owner: Option<(u32, u32)>) -> Result<bool, PublishError> {
    let mut is_new = false;
    let mut missing = Vec::new();
    for ancestor in dir.ancestors() {
        if ancestor.as_os_str().is_empty() {
            break;
        }
        match fs::stat(ancestor) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => break,
            Ok(_) | Err(Errno::NOTDIR) => {
                return Err(PublishError::NotADirectory {
                    path: ancestor.to_owned(),
                });
            }
            Err(Errno::NOENT) => missing.push(ancestor),
            Err(errno) => return Err(PublishError::io("look at", ancestor, errno)),
        }
    }
    for folder in missing.into_iter().rev() {
        is_new = match make_dir(folder, mode, owner) {
            Ok(()) => true,
            // Another writer was faster, which is just as good.
            Err(Errno::EXIST) if folder.is_dir() => false,
            Err(errno) => return Err(PublishError::io("create the folder", folder, errno)),
        };
    }
    Ok(is_new)
}

/// Makes the one folder `dir` with exactly `mode` and, where given, `owner`.
pub(crate) fn make_dir(dir: &Path, mode: u32, owner: Option<(u32, u32)>) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(mode & 0o7777);
    fs::mkdir(dir, mode)?;
    if let Some((uid, gid)) = owner {
        fs::chown(dir, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    fs::chmod(dir, mode)
}
