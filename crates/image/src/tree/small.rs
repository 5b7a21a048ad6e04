//! The tree of `tiny`, from the same definition as its initramfs.

use std::ffi::OsStr;

use airlock_digest::FileHasher;

use crate::initramfs::{self, FOLDERS, Item, small_system};
use crate::tree::TreeError;
use crate::tree::path::TreePath;
use crate::tree::writer::{Meta, TreeWriter};

/// What a small system is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) busybox: Vec<u8>,
    pub(crate) applets: Vec<String>,
}

impl Parts {
    /// Which definition of the small system this is.
    pub(crate) fn recipe() -> String {
        format!("tiny-{}", initramfs::RECIPE)
    }

    /// SHA-256 over all that decides what the tree looks like.
    pub(crate) fn digest(&self) -> String {
        let mut hasher = FileHasher::new();
        hasher.update(Self::recipe().as_bytes());
        hasher.update(b"\n");
        for applet in &self.applets {
            hasher.update(applet.as_bytes());
            hasher.update(b"\n");
        }
        hasher.update(&self.busybox);
        hasher.finish().to_string()
    }

    /// Writes the whole system.
    pub(crate) fn write(&self, writer: &mut TreeWriter<'_>) -> Result<(), TreeError> {
        writer.begin_layer();
        let path = |text: &str| TreePath::parse(text.as_bytes());
        for (folder, mode) in FOLDERS {
            // It is for the way to another root, which a container does not go.
            if folder != "sysroot" {
                writer.folder(&path(folder)?, Meta::of_root(mode))?;
            }
        }
        for item in small_system(&self.busybox, &self.applets) {
            match item {
                Item::Folder { path: at, mode } => writer.folder(&path(at)?, Meta::of_root(mode)),
                Item::File {
                    path: at,
                    mode,
                    mut content,
                } => {
                    let meta = Meta::of_root(mode);
                    writer
                        .file(&path(at)?, meta, &mut content, &TreeError::Io)
                        .map(drop)
                }
                Item::Link { path: at, target } => {
                    let meta = Meta::of_root(0o777);
                    writer.link(&path(&at)?, meta, OsStr::new(target))
                }
            }?;
        }
        Ok(())
    }
}
