//! Chooses kernel modules and the order in which they load.
//!
//! A kernel package has no `modules.dep`: that is made when it is installed. So the dependencies
//! are read from the modules themselves, which name them in their `.modinfo` section.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::error::BuildError;

/// Modules that a Space needs to boot. Names as the kernel writes them, with `_`.
///
/// `virtio_pci`, `virtio_blk` and ext4 bring up the disks (root and lane), `virtio_net` the control
/// channel.
pub(crate) const NEEDED: [&str; 4] = ["virtio_pci", "virtio_blk", "virtio_net", "ext4"];

/// Modules taken where the kernel has them.
///
/// `virtio_rng` feeds the random numbers, overlay is for what runs in the Space, and the
/// processor's own CRC makes ext4's checksums cheap.
pub(crate) const WANTED: [&str; 3] = ["virtio_rng", "overlay", "crc32c_intel"];

/// A module file, unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Module {
    /// Path beneath the folder of the kernel's release, without a compression's ending.
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
}

/// Collects the modules of `NEEDED` and `WANTED` and all they depend on, in load order.
///
/// `folder` is the release's folder (`…/lib/modules/<release>`); `read` gives a module file's
/// unpacked content.
pub(crate) fn collect(
    folder: &Path,
    read: &mut dyn FnMut(&Path) -> Result<Vec<u8>, BuildError>,
) -> Result<Vec<Module>, BuildError> {
    let builtin: BTreeSet<String> = fs::read_to_string(folder.join("modules.builtin"))?
        .lines()
        .map(|line| module_name(Path::new(line)))
        .collect();
    let mut files = BTreeMap::new();
    index(folder, &mut files)?;
    let mut order = Order {
        folder,
        builtin,
        files,
        read,
        seen: BTreeSet::new(),
        modules: Vec::new(),
    };
    for name in NEEDED {
        order.add(name)?;
    }
    for name in WANTED {
        if order.files.contains_key(name) {
            order.add(name)?;
        }
    }
    Ok(order.modules)
}

struct Order<'a> {
    folder: &'a Path,
    builtin: BTreeSet<String>,
    files: BTreeMap<String, PathBuf>,
    read: &'a mut dyn FnMut(&Path) -> Result<Vec<u8>, BuildError>,
    seen: BTreeSet<String>,
    modules: Vec<Module>,
}

impl Order<'_> {
    /// Adds what the module depends on, then the module. A cycle ends at what was seen.
    fn add(&mut self, name: &str) -> Result<(), BuildError> {
        if self.builtin.contains(name) || !self.seen.insert(name.to_owned()) {
            return Ok(());
        }
        let bad = |problem| BuildError::Module {
            module: name.to_owned(),
            problem,
        };
        let Some(file) = self.files.get(name).cloned() else {
            return Err(bad(
                "it is neither in the kernel package nor built into the kernel",
            ));
        };
        let content = (self.read)(&file)?;
        if !content.starts_with(b"\x7fELF") {
            return Err(bad("it is no ELF file"));
        }
        for dependency in depends(&content).ok_or_else(|| bad("it has no list of dependencies"))? {
            self.add(&dependency)?;
        }
        let relative = file
            .strip_prefix(self.folder)
            .unwrap_or(&file)
            .to_string_lossy();
        let path = match relative.rsplit_once(".ko") {
            Some((stem, _)) => format!("{stem}.ko"),
            None => relative.into_owned(),
        };
        self.modules.push(Module { path, content });
        Ok(())
    }
}

fn index(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<(), BuildError> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            index(&entry.path(), files)?;
        } else if kind.is_file() && entry.file_name().to_string_lossy().contains(".ko") {
            files.insert(module_name(&entry.path()), entry.path());
        }
    }
    Ok(())
}

/// The kernel's name for a module file: no folder, no ending, `_` for `-`.
fn module_name(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.split(".ko")
        .next()
        .unwrap_or_default()
        .replace('-', "_")
}

/// The names in the first `depends=` text of a module; `None` if it has no such text.
fn depends(content: &[u8]) -> Option<Vec<String>> {
    let mut texts = content.split(|byte| *byte == 0);
    let list = texts.find_map(|text| text.strip_prefix(b"depends="))?;
    let list = std::str::from_utf8(list).ok()?;
    Some(
        list.split(',')
            .filter(|name| !name.is_empty())
            .map(|name| name.replace('-', "_"))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, path: &str, depends: &str) {
        let file = folder.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let content = format!("\x7fELF\0license=GPL\0depends={depends}\0retpoline=Y\0");
        std::fs::write(file, content).unwrap();
    }

    fn order(folder: &Path) -> Result<Vec<String>, BuildError> {
        let mut read = |path: &Path| Ok(std::fs::read(path)?);
        let modules = collect(folder, &mut read)?;
        Ok(modules.into_iter().map(|module| module.path).collect())
    }

    #[test]
    fn what_others_need_comes_first_and_builtins_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        std::fs::write(folder.join("modules.builtin"), "kernel/fs/ext4/ext4.ko\n").unwrap();
        write(
            folder,
            "kernel/drivers/virtio/virtio_pci.ko.xz",
            "virtio,virtio-ring",
        );
        write(folder, "kernel/drivers/virtio/virtio-ring.ko.xz", "virtio");
        write(folder, "kernel/drivers/virtio/virtio.ko.xz", "");
        write(
            folder,
            "kernel/drivers/block/virtio_blk.ko",
            "virtio_ring,virtio",
        );
        write(folder, "kernel/drivers/net/virtio_net.ko", "net_failover");
        write(folder, "kernel/drivers/net/net_failover.ko", "failover");
        write(folder, "kernel/net/core/failover.ko", "net_failover");
        write(
            folder,
            "kernel/drivers/char/hw_random/virtio-rng.ko.zst",
            "virtio",
        );
        assert_eq!(
            order(folder).unwrap(),
            [
                "kernel/drivers/virtio/virtio.ko",
                "kernel/drivers/virtio/virtio-ring.ko",
                "kernel/drivers/virtio/virtio_pci.ko",
                "kernel/drivers/block/virtio_blk.ko",
                "kernel/net/core/failover.ko",
                "kernel/drivers/net/net_failover.ko",
                "kernel/drivers/net/virtio_net.ko",
                "kernel/drivers/char/hw_random/virtio-rng.ko",
            ]
        );
    }

    #[test]
    fn a_needed_module_that_is_nowhere_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("modules.builtin"), "").unwrap();
        let error = order(folder.path()).unwrap_err();
        assert!(error.to_string().contains("virtio_pci"), "{error}");
    }

    #[test]
    fn damaged_modules_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("modules.builtin"), "").unwrap();
        std::fs::write(folder.path().join("virtio_pci.ko"), "junk").unwrap();
        assert!(
            order(folder.path())
                .unwrap_err()
                .to_string()
                .contains("no ELF file")
        );
        std::fs::write(folder.path().join("virtio_pci.ko"), "\x7fELF").unwrap();
        assert!(
            order(folder.path())
                .unwrap_err()
                .to_string()
                .contains("no list of dependencies")
        );
    }
}
