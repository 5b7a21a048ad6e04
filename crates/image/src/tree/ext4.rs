//! Reads a raw ext4 file system in this process; the kernel never sees it.
//!
//! The reader knows no inode numbers, so a file with several names becomes several files.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use ext4_view::{
    DirEntry, Ext4, Ext4Error, FileType, Metadata, Path as Ext4Path, PathBuf as Ext4PathBuf,
};

use crate::tree::TreeError;
use crate::tree::path::TreePath;
use crate::tree::writer::{Meta, TreeWriter};

#[cfg(test)]
mod tests;

/// The longest text that a symbolic link can have.
const MAX_TARGET_BYTES: u64 = 4095;

/// Copies all files of the file system in `file`; `on_file` is told how many there are so far.
pub(crate) fn copy(
    file: &Path,
    writer: &mut TreeWriter<'_>,
    on_file: &dyn Fn(u64),
) -> Result<(), TreeError> {
    let failed = |path: &TreePath, source: io::Error| TreeError::Ext4 {
        file: file.to_owned(),
        path: path.to_string(),
        source,
    };
    let root = TreePath::default();
    let ext4 = Ext4::load_from_path(file).map_err(|error| failed(&root, error.into()))?;
    let copier = Copier {
        ext4,
        failed: &failed,
        on_file,
    };
    let meta = copier
        .ext4
        .symlink_metadata("/")
        .map_err(|error| failed(&root, error.into()))?;
    writer.begin_layer();
    writer.folder(&root, meta_of(&meta))?;
    // A list and no recursion: a hostile folder may hold itself, and the stack is short.
    let mut folders = vec![(root, Ext4PathBuf::new("/"))];
    while let Some((path, place)) = folders.pop() {
        copier.folder(&path, place.as_path(), writer, &mut folders)?;
    }
    Ok(())
}

/// Folders still to be read: where they are in the tree and on the disk.
type Folders = Vec<(TreePath, Ext4PathBuf)>;

struct Copier<'a> {
    ext4: Ext4,
    failed: &'a dyn Fn(&TreePath, io::Error) -> TreeError,
    on_file: &'a dyn Fn(u64),
}

impl Copier<'_> {
    fn folder(
        &self,
        folder: &TreePath,
        place: Ext4Path<'_>,
        writer: &mut TreeWriter<'_>,
        folders: &mut Folders,
    ) -> Result<(), TreeError> {
        let failed = |error: Ext4Error| (self.failed)(folder, error.into());
        for entry in self.ext4.read_dir(place).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let name: &[u8] = name.as_ref();
            // Made by mke2fs, for repairs; an image has nothing of its own there.
            let is_recovery = folder.is_root() && name == b"lost+found";
            if name != b"." && name != b".." && !is_recovery {
                self.entry(&folder.child(name)?, &entry, writer, folders)?;
            }
        }
        Ok(())
    }

    fn entry(
        &self,
        path: &TreePath,
        entry: &DirEntry,
        writer: &mut TreeWriter<'_>,
        folders: &mut Folders,
    ) -> Result<(), TreeError> {
        (self.on_file)(writer.files());
        let failed = |error: Ext4Error| (self.failed)(path, error.into());
        let found = entry.metadata().map_err(failed)?;
        let meta = meta_of(&found);
        let place = entry.path();
        match found.file_type() {
            FileType::Directory => {
                writer.folder(path, meta)?;
                folders.push((path.clone(), place));
                Ok(())
            }
            FileType::Regular => {
                let mut content = self.ext4.open(&place).map_err(failed)?;
                let unread = |error| (self.failed)(path, error);
                writer.file(path, meta, &mut content, &unread).map(drop)
            }
            // The reader takes its memory by what the file system says.
            FileType::Symlink if found.len() > MAX_TARGET_BYTES => Err((self.failed)(
                path,
                io::Error::new(io::ErrorKind::InvalidData, "the link is too long"),
            )),
            FileType::Symlink => {
                let target = self.ext4.read_link(&place).map_err(failed)?;
                writer.link(path, meta, OsStr::from_bytes(target.as_ref()))
            }
            FileType::Fifo => writer.fifo(path, meta),
            FileType::BlockDevice | FileType::CharacterDevice | FileType::Socket => {
                writer.skip(path)
            }
        }
    }
}

fn meta_of(found: &Metadata) -> Meta {
    let modified = found.modified();
    Meta {
        mode: u32::from(found.mode()),
        uid: found.uid(),
        gid: found.gid(),
        modified: Some((modified.seconds(), modified.nanoseconds())),
    }
}
