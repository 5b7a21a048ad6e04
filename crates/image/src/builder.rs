//! From parts to a published image.

use std::io;
use std::path::{Path, PathBuf};

use airlock_model::{HomePaths, ImageName};
use fs_err as fs;
use tokio_util::sync::CancellationToken;

use crate::busybox::Busybox;
use crate::catalog::OnProgress;
use crate::error::BuildError;
use crate::host::Arch;
use crate::import::{self, Imported};
use crate::initramfs;
use crate::job::{Job, link_or_copy};
use crate::kernel::Kernel;
use crate::manifest::{self, FORMAT, Manifest, Piece, RootPiece};
use crate::part::{Freshness, Kind, Part, unix_now};
use crate::progress::Phase;
use crate::rootfs;
use crate::tree;

pub(crate) mod root;

/// Digits of a file's digest that stand in its name.
const NAME_DIGITS: usize = 16;

/// Which image is built how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recipe {
    /// The initramfs is the whole system.
    Tiny,
    /// The initramfs leads to a root file system.
    Linux,
    /// The same, but the root file system is made of layers that came from elsewhere.
    Imported,
}

impl Recipe {
    /// The images that can be built from nothing, by their names.
    const NAMED: [(&str, Self); 2] = [("tiny", Self::Tiny), ("linux", Self::Linux)];

    /// The recipe for the image of this name, whose folder is `dir`.
    pub(crate) fn of(name: &ImageName, dir: &Path) -> Option<Self> {
        Self::NAMED
            .into_iter()
            .find(|(known, _)| *known == name.as_str())
            .map(|(_, recipe)| recipe)
            .or_else(|| {
                let imported = Imported::read(dir).ok().flatten();
                imported.map(|_| Self::Imported)
            })
    }

    /// The names of all images that can be built from nothing.
    pub(crate) fn names() -> impl Iterator<Item = ImageName> {
        Self::NAMED
            .into_iter()
            .filter_map(|(name, _)| ImageName::new(name).ok())
    }

    /// Whether a build from what is on this disk would give the same image again.
    pub(crate) fn is_current(self, manifest: &Manifest, guestd_sha256: &str, cache: &Path) -> bool {
        let newer_kernel = Part::newest(cache, Kind::Kernel)
            .is_some_and(|part| part.description.version != manifest.kernel_version);
        manifest.guestd_sha256 == guestd_sha256
            && manifest.initramfs_recipe == initramfs::RECIPE
            && manifest.kernel_recipe == Kind::Kernel.recipe()
            && manifest.arch == Arch::HOST
            && !newer_kernel
            && match self {
                Self::Tiny => manifest.root.is_none(),
                Self::Linux | Self::Imported => {
                    manifest.root.as_ref().is_some_and(|root| self.made(root))
                }
            }
    }

    /// Whether this recipe of today made the root file system.
    pub(crate) fn made(self, root: &RootPiece) -> bool {
        match self {
            Self::Tiny => false,
            Self::Linux => root.recipe == rootfs::RECIPE,
            // Which layers is no question: another content is an image of another name.
            Self::Imported => root.recipe == import::root::RECIPE,
        }
    }
}

/// One build to do.
pub(crate) struct Request<'a> {
    pub(crate) home: &'a HomePaths,
    pub(crate) name: &'a ImageName,
    pub(crate) recipe: Recipe,
    pub(crate) guestd: &'a [u8],
    pub(crate) guestd_sha256: &'a str,
    pub(crate) freshness: Freshness,
    pub(crate) on_progress: &'a OnProgress<'a>,
    pub(crate) cancel: &'a CancellationToken,
}

/// Builds and publishes; the caller holds the image's lock.
pub(crate) fn build(request: &Request<'_>) -> Result<Manifest, BuildError> {
    let job = Job::start(
        request.home,
        request.name,
        request.on_progress,
        request.cancel,
    )?;
    let dir = request.home.image(request.name);
    let before = Manifest::read(&dir)?.filter(|manifest| manifest.first_damaged(&dir).is_none());

    let kernel = Kernel::obtain(&job, request.freshness)?;
    let root = match request.recipe {
        Recipe::Tiny => None,
        Recipe::Linux | Recipe::Imported => Some(root::obtain(
            &job,
            request.recipe,
            &dir,
            request.freshness,
            before.as_ref(),
        )?),
    };
    let busybox = match request.recipe {
        Recipe::Tiny => Some(Busybox::obtain(&job, request.freshness)?),
        Recipe::Linux | Recipe::Imported => None,
    };

    job.report(Phase::WritingInitramfs, None, "");
    let work = job.dir.folder("pieces")?;
    let initramfs_file = work.join("initramfs");
    let out = io::BufWriter::new(fs::File::create(&initramfs_file)?);
    initramfs::write(out, request.guestd, &kernel, busybox.as_ref())?;
    let kernel_file = work.join("kernel");
    link_or_copy(&kernel.file(), &kernel_file)?;

    job.report(Phase::Publishing, None, "");
    let kernel_piece = stage(&job, "kernel", &kernel_file)?;
    let initramfs_piece = stage(&job, "initramfs", &initramfs_file)?;
    let manifest = Manifest {
        format: FORMAT,
        arch: Arch::HOST,
        created_unix: unix_now(),
        kernel: kernel_piece.piece.clone(),
        kernel_version: kernel.version().to_owned(),
        kernel_recipe: Kind::Kernel.recipe(),
        initramfs: initramfs_piece.piece.clone(),
        initramfs_recipe: initramfs::RECIPE,
        guestd_sha256: request.guestd_sha256.to_owned(),
        root: root.as_ref().map(|(root, _)| root.clone()),
    };
    job.check_cancelled()?;
    fs::create_dir_all(&dir)?;
    let new_root = root.and_then(|(_, staged)| staged);
    for staged in [Some(kernel_piece), Some(initramfs_piece), new_root]
        .into_iter()
        .flatten()
    {
        staged.install(&dir)?;
    }
    manifest.publish(&dir)?;
    if manifest.root.is_some() {
        // The manifest names the root now.
        remove_if_there(&dir.join(root::FILE_NAME))?;
    }
    remove_leftovers(&dir, &manifest, before.as_ref());
    Ok(manifest)
}

/// A file of the new image, synced but still in the build folder.
pub(crate) struct Staged {
    file: PathBuf,
    pub(crate) piece: Piece,
}

/// Syncs and measures a file; its name will tell its content.
pub(crate) fn stage(job: &Job<'_>, kind: &str, file: &Path) -> Result<Staged, BuildError> {
    let bytes = fs::metadata(file)?.len();
    let sha256 = manifest::sha256_of_file(file, &mut |_| job.check_cancelled())?.to_string();
    let extension = if kind == "root" { ".ext4" } else { "" };
    let name = format!("{kind}-{}{extension}", &sha256[..NAME_DIGITS]);
    fs::File::open(file)?.sync_all()?;
    Ok(Staged {
        file: file.to_owned(),
        piece: Piece {
            file: name,
            bytes,
            sha256,
        },
    })
}

impl Staged {
    /// Moves the file into the image's folder, where nothing refers to it until the manifest does.
    pub(crate) fn install(self, dir: &Path) -> io::Result<()> {
        let target = dir.join(&self.piece.file);
        // The same content may be there already, and a running Space may have it open.
        if fs::metadata(&target).map_or(true, |meta| meta.len() != self.piece.bytes) {
            fs::rename(self.file, &target)?;
        }
        Ok(())
    }
}

/// Removes a file; one that is not there is fine.
pub(crate) fn remove_if_there(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes kernels and initramfs files of builds before the last one.
///
/// The last one's stay, for a Space that is being started from them right now; old root file
/// systems and trees stay for the Spaces that were made from them.
fn remove_leftovers(dir: &Path, now: &Manifest, before: Option<&Manifest>) {
    let keep: Vec<&str> = [Some(now), before]
        .into_iter()
        .flatten()
        .flat_map(Manifest::pieces)
        .map(|piece| piece.file.as_str())
        .chain([manifest::FILE_NAME])
        .collect();
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let file = entry.file_name();
        let is_kept = root::is_root(&file)
            || tree::is_ours(&file)
            || import::is_ours(&file)
            || keep.iter().any(|name| **name == *file);
        if !is_kept {
            let _ = fs::remove_file(entry.path());
        }
    }
    if let Err(error) = tree::sweep(dir) {
        tracing::warn!(dir = %dir.display(), %error, "a leftover of a tree stays behind");
    }
}
