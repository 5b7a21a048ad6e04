//! The kernel of the Spaces: the distribution's own build for virtual machines.

use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::apt::{Apt, Package};
use crate::command::Tool;
use crate::error::BuildError;
use crate::host::{Arch, Family, MissingTools, PackageNeed, Purpose, find_tool};
use crate::job::Job;
use crate::modules::{self, Module};
use crate::part::{Freshness, Kind, Origin, Part};
use crate::progress::Phase;
use crate::vmlinux::{self, Packed};

const KERNEL_FILE: &str = "kernel";
const MODULES_FOLDER: &str = "modules";
const ORDER_FILE: &str = "load-order";

/// A kernel with the modules that a Space loads.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    part: Part,
}

impl Kernel {
    /// Gives the cached kernel or fetches one.
    pub(crate) fn obtain(job: &Job<'_>, freshness: Freshness) -> Result<Self, BuildError> {
        let part = Part::obtain(job, Kind::Kernel, freshness, &|folder| fetch(job, folder))?;
        Ok(Self { part })
    }

    /// Version of the package.
    pub(crate) fn version(&self) -> &str {
        &self.part.description.version
    }

    /// `uname -r`.
    pub(crate) fn release(&self) -> &str {
        &self.part.description.release
    }

    /// The file to boot.
    pub(crate) fn file(&self) -> PathBuf {
        self.part.dir.join(KERNEL_FILE)
    }

    /// The modules in load order.
    pub(crate) fn modules(&self) -> Result<Vec<Module>, BuildError> {
        let folder = self.part.dir.join(MODULES_FOLDER);
        let order = fs::read_to_string(self.part.dir.join(ORDER_FILE))?;
        order
            .lines()
            .map(|path| {
                Ok(Module {
                    path: path.to_owned(),
                    content: fs::read(folder.join(path))?,
                })
            })
            .collect()
    }
}

fn fetch(job: &Job<'_>, folder: &Path) -> Result<Origin, BuildError> {
    job.report(Phase::Resolving, None, "kernel");
    let apt = Apt::new(job)?;
    let (packages, tree) = apt.fetch_and_unpack(&resolve)?;
    let image = &packages[0];
    let lacks = |what: &str| BuildError::NotInPackage {
        package: image.name.clone(),
        what: what.to_owned(),
    };
    let (release, release_folder) = find_release(&tree).ok_or_else(|| lacks("modules"))?;
    let kernel = find_kernel(&tree, &release).ok_or_else(|| lacks("kernel in /boot"))?;
    fs::write(folder.join(KERNEL_FILE), to_boot(job, fs::read(kernel)?)?)?;
    let modules = modules::collect(&release_folder, &mut |file| unpack_module(job, file))?;
    let mut order = String::new();
    for module in modules {
        let file = folder.join(MODULES_FOLDER).join(&module.path);
        fs::create_dir_all(file.parent().unwrap_or(folder))?;
        fs::write(file, module.content)?;
        order.push_str(&module.path);
        order.push('\n');
    }
    fs::write(folder.join(ORDER_FILE), order)?;
    Ok(Origin {
        version: image.version.clone(),
        release,
    })
}

/// From the package that always names the newest kernel to the packages with its files.
fn resolve(apt: &Apt<'_>) -> Result<Vec<Package>, BuildError> {
    let dependency = |package: &Package, prefix: &str| {
        package
            .depends
            .iter()
            .find(|name| name.starts_with(prefix))
            .cloned()
    };
    let newest = apt.package(&newest_kernel(apt.family()))?;
    let image_name =
        dependency(&newest, "linux-image-").ok_or_else(|| BuildError::NotInPackage {
            package: newest.name.clone(),
            what: "kernel it depends on".to_owned(),
        })?;
    let image = apt.package(&image_name)?;
    // Ubuntu keeps the modules in a package of their own, Debian since version 13 may, too.
    let modules = dependency(&image, "linux-modules-")
        .map(|name| apt.package(&name))
        .transpose()?;
    Ok([Some(image), modules].into_iter().flatten().collect())
}

fn newest_kernel(family: Family) -> String {
    match family {
        Family::Ubuntu => "linux-image-virtual".to_owned(),
        Family::Debian | Family::Other => format!("linux-image-cloud-{}", Arch::HOST.debian()),
    }
}

fn find_release(tree: &Path) -> Option<(String, PathBuf)> {
    ["lib/modules", "usr/lib/modules"]
        .iter()
        .filter_map(|folder| fs::read_dir(tree.join(folder)).ok())
        .flat_map(std::iter::Iterator::flatten)
        .map(|entry| entry.path())
        .find(|folder| folder.join("modules.builtin").is_file())
        .and_then(|folder| Some((folder.file_name()?.to_str()?.to_owned(), folder)))
}

fn find_kernel(tree: &Path, release: &str) -> Option<PathBuf> {
    let boot = tree.join("boot").join(format!("vmlinuz-{release}"));
    let beside_modules = tree.join("usr/lib/modules").join(release).join("vmlinuz");
    [boot, beside_modules]
        .into_iter()
        .find(|file| file.is_file())
}

/// The plain kernel where it can be taken out and QEMU can start it, else the file as it is.
fn to_boot(job: &Job<'_>, image: Vec<u8>) -> Result<Vec<u8>, BuildError> {
    let plain = match vmlinux::find(&image) {
        Some(Packed::Lz4 { frame, plain_bytes }) => vmlinux::unpack_lz4(frame, plain_bytes),
        Some(Packed::Other { tool, stream }) if find_tool(tool).is_some() => {
            let file = job.fresh_folder("packed")?.join("kernel");
            fs::write(&file, stream)?;
            let input = fs::File::open(file)?.into_parts().0;
            Some(job.capture(Tool::new(tool).arg("-dc").input(input))?)
        }
        Some(Packed::Other { .. }) | None => None,
    };
    Ok(plain
        .filter(|kernel| vmlinux::has_pvh_entry(kernel))
        .unwrap_or(image))
}

fn unpack_module(job: &Job<'_>, file: &Path) -> Result<Vec<u8>, BuildError> {
    job.check_cancelled()?;
    let (tool, package) = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => ("xz", "xz-utils"),
        Some("zst") => ("zstd", "zstd"),
        Some("gz") => ("gzip", "gzip"),
        Some(_) | None => return Ok(fs::read(file)?),
    };
    if find_tool(tool).is_none() {
        let why = "unpacks kernel modules";
        let needs = vec![PackageNeed {
            package,
            tool,
            why,
            purpose: Purpose::BuildAny,
        }];
        return Err(MissingTools {
            needs,
            family: job.host.family,
        }
        .into());
    }
    job.report(
        Phase::Unpacking,
        None,
        &file.file_name().unwrap_or_default().to_string_lossy(),
    );
    job.capture(Tool::new(tool).arg("-dc").arg(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_files_wherever_a_distribution_puts_them() {
        for (modules, kernel) in [
            ("lib/modules/6.1.0-1", "boot/vmlinuz-6.1.0-1"),
            ("usr/lib/modules/6.1.0-1", "usr/lib/modules/6.1.0-1/vmlinuz"),
        ] {
            let tree = tempfile::tempdir().unwrap();
            let tree = tree.path();
            std::fs::create_dir_all(tree.join(modules)).unwrap();
            assert!(find_release(tree).is_none());
            std::fs::write(tree.join(modules).join("modules.builtin"), "").unwrap();
            let (release, folder) = find_release(tree).unwrap();
            assert_eq!((release.as_str(), folder), ("6.1.0-1", tree.join(modules)));
            assert!(find_kernel(tree, &release).is_none());
            std::fs::create_dir_all(tree.join(kernel).parent().unwrap()).unwrap();
            std::fs::write(tree.join(kernel), "").unwrap();
            assert_eq!(find_kernel(tree, &release).unwrap(), tree.join(kernel));
        }
    }
}
