//! Disks by serial number; names such as `vda` depend on the order of probing.

use std::fs;
use std::path::{Path, PathBuf};

/// The device file of the disk with serial number `serial`.
pub(super) fn find(serial: &str) -> Option<PathBuf> {
    let disk = fs::read_dir("/sys/block").ok()?.flatten().find(|disk| {
        let found = fs::read_to_string(disk.path().join("serial")).unwrap_or_default();
        found.trim_end() == serial
    })?;
    Some(Path::new("/dev").join(disk.file_name()))
}

/// Bytes of the disk with device file `device`.
pub(super) fn bytes(device: &Path) -> Option<u64> {
    const SECTOR_BYTES: u64 = 512;
    let size = Path::new("/sys/class/block")
        .join(device.file_name()?)
        .join("size");
    let sectors: u64 = fs::read_to_string(size).ok()?.trim().parse().ok()?;
    Some(sectors * SECTOR_BYTES)
}
