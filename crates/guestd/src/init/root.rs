//! The root disk: mounted, grown to its device, made the root.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_move};

use super::disk;
use crate::console::say;
use crate::sys::machine::resize_ext4;

/// Where the root disk is mounted before it is the root.
const STAGING: &str = "/sysroot";
/// Mounts that move along.
const MOVED: [&str; 4] = ["dev", "proc", "sys", "run"];

/// Why the root disk cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// No ext4 file system, or a broken one.
    #[error("cannot mount {}", device.display())]
    Mount {
        /// The disk.
        device: PathBuf,
        /// What the system said.
        #[source]
        source: Errno,
    },
    /// A mount cannot be moved into the new root.
    #[error("cannot move /{name} to the root disk")]
    Move {
        /// The mount.
        name: &'static str,
        /// What the system said.
        #[source]
        source: Errno,
    },
    /// The new root cannot be entered.
    #[error("cannot switch to the root disk")]
    Switch(#[source] Errno),
}

/// Makes the file system on `device` the root and frees what the initramfs held.
pub(super) fn switch_to(device: &Path) -> Result<(), RootError> {
    let _ = rustix::fs::mkdir(STAGING, Mode::from_raw_mode(0o755));
    mount(device, STAGING, "ext4", MountFlags::NOATIME, c"").map_err(|source| {
        RootError::Mount {
            device: device.to_owned(),
            source,
        }
    })?;
    if let Err(error) = grow(device) {
        say(format_args!("the root file system was not grown: {error}"));
    }
    for name in MOVED {
        let target = Path::new(STAGING).join(name);
        let _ = rustix::fs::mkdir(&target, Mode::from_raw_mode(0o755));
        mount_move(Path::new("/").join(name), &target)
            .map_err(|source| RootError::Move { name, source })?;
    }
    free_initramfs();
    rustix::process::chdir(STAGING)
        .and_then(|()| mount_move(".", "/"))
        .and_then(|()| rustix::process::chroot("."))
        .and_then(|()| rustix::process::chdir("/"))
        .map_err(RootError::Switch)
}

/// Grows the file system to the size of its disk, which a person may have asked to be larger
/// than the image.
fn grow(device: &Path) -> io::Result<()> {
    let superblock = Superblock::read(device)?;
    let disk_bytes = disk::bytes(device).ok_or(io::ErrorKind::NotFound)?;
    let blocks = disk_bytes / superblock.block_bytes;
    if blocks <= superblock.blocks {
        return Ok(());
    }
    resize_ext4(File::open(STAGING)?.as_fd(), blocks)
}

/// The two numbers of an ext4 superblock that matter here, by
/// <https://docs.kernel.org/filesystems/ext4/globals.html>.
#[derive(Debug, PartialEq, Eq)]
struct Superblock {
    block_bytes: u64,
    blocks: u64,
}

impl Superblock {
    const OFFSET: u64 = 1024;
    const BYTES: usize = 1024;

    fn read(device: &Path) -> io::Result<Self> {
        let mut bytes = [0; Self::BYTES];
        File::open(device)?.read_exact_at(&mut bytes, Self::OFFSET)?;
        Self::parse(&bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let word = |at: usize| {
            let word = bytes.get(at..at + 4)?;
            Some(u32::from_le_bytes(word.try_into().ok()?))
        };
        let is_64bit = word(0x60)? & 0x80 != 0;
        let high = if is_64bit { word(0x150)? } else { 0 };
        Some(Self {
            block_bytes: 1024_u64.checked_shl(word(0x18)?)?,
            blocks: u64::from(high) << 32 | u64::from(word(0x4)?),
        })
    }
}

/// Deletes the files of the initramfs, which would hold memory for good.
///
/// guestd's own program stays readable through `/proc/self/exe` for as long as it runs.
fn free_initramfs() {
    let root = Path::new("/");
    if let Ok(meta) = fs::symlink_metadata(root) {
        delete_beneath(root, meta.dev());
    }
}

fn delete_beneath(dir: &Path, dev: u64) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(meta) = entry.metadata() else { continue };
        if meta.dev() != dev {
            continue;
        }
        if meta.is_dir() {
            delete_beneath(&path, dev);
            // A folder that holds a mount point stays; it holds no memory to speak of.
            let _ = fs::remove_dir(&path);
        } else {
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_superblock_tells_block_size_and_count() {
        let mut bytes = [0; Superblock::BYTES];
        bytes[0x4..0x8].copy_from_slice(&7_u32.to_le_bytes());
        bytes[0x18] = 2;
        bytes[0x150] = 1;
        let small = Superblock {
            block_bytes: 4096,
            blocks: 7,
        };
        assert_eq!(Superblock::parse(&bytes), Some(small));
        bytes[0x60] = 0x80;
        let large = Superblock {
            block_bytes: 4096,
            blocks: (1 << 32) + 7,
        };
        assert_eq!(Superblock::parse(&bytes), Some(large));
        bytes[0x1b] = 1;
        assert_eq!(Superblock::parse(&bytes), None);
    }
}
