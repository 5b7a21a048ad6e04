//! From parts to a published image.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use airlock_model::{HomePaths, ImageName};
use fs_err as fs;
use tokio_util::sync::CancellationToken;

use crate::busybox::Busybox;
use crate::catalog::OnProgress;
use crate::error::BuildError;
use crate::host::Arch;
use crate::initramfs;
use crate::job::{Job, link_or_copy};
use crate::kernel::Kernel;
use crate::manifest::{self, FORMAT, Manifest, Piece, RootPiece};
use crate::part::{Freshness, Kind, Part, unix_now};
use crate::progress::Phase;
use crate::rootfs;

/// Digits of a file's digest that stand in its name.
const NAME_DIGITS: usize = 16;

/// Which image is built how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recipe {
    /// The initramfs is the whole system.
    Tiny,
    /// The initramfs leads to a root file system.
    Linux,
}

impl Recipe {
    const ALL: [Self; 2] = [Self::Tiny, Self::Linux];

    fn as_str(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Linux => "linux",
        }
    }

    /// The recipe for an image of this name.
    pub(crate) fn of(name: &ImageName) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|recipe| recipe.as_str() == name.as_str())
    }

    /// The names of all images that can be built.
    pub(crate) fn names() -> impl Iterator<Item = ImageName> {
        Self::ALL
            .into_iter()
            .filter_map(|recipe| ImageName::new(recipe.as_str()).ok())
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
                Self::Linux => current_root(manifest).is_some(),
            }
    }
}

fn current_root(manifest: &Manifest) -> Option<&RootPiece> {
    manifest
        .root
        .as_ref()
        .filter(|root| root.recipe == rootfs::RECIPE)
}

/// Whether a file of an image's folder is a root file system, of now or of before.
pub(crate) fn is_root(file: &OsStr) -> bool {
    file.as_encoded_bytes().starts_with(b"root-")
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
        Recipe::Linux => Some(root(&job, request.freshness, before.as_ref())?),
    };
    let busybox = match request.recipe {
        Recipe::Tiny => Some(Busybox::obtain(&job, request.freshness)?),
        Recipe::Linux => None,
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
    remove_leftovers(&dir, &manifest, before.as_ref());
    Ok(manifest)
}

/// The root file system: the image's own where it is current, else a new one to install.
fn root(
    job: &Job<'_>,
    freshness: Freshness,
    before: Option<&Manifest>,
) -> Result<(RootPiece, Option<Staged>), BuildError> {
    match (before.and_then(current_root), freshness) {
        (Some(root), Freshness::Cached) => Ok((root.clone(), None)),
        (Some(_), Freshness::Newest) | (None, _) => {
            let made = rootfs::build(job)?;
            job.report(Phase::Publishing, None, "root file system");
            let staged = stage(job, "root", &made.file)?;
            let piece = staged.piece.clone();
            Ok((
                RootPiece {
                    piece,
                    recipe: rootfs::RECIPE,
                    suite: made.suite,
                },
                Some(staged),
            ))
        }
    }
}

/// A file of the new image, synced but still in the build folder.
struct Staged {
    file: PathBuf,
    piece: Piece,
}

/// Syncs and measures a file; its name will tell its content.
fn stage(job: &Job<'_>, kind: &str, file: &Path) -> Result<Staged, BuildError> {
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
    fn install(self, dir: &Path) -> io::Result<()> {
        let target = dir.join(&self.piece.file);
        // The same content may be there already, and a running Space may have it open.
        if fs::metadata(&target).map_or(true, |meta| meta.len() != self.piece.bytes) {
            fs::rename(self.file, &target)?;
        }
        Ok(())
    }
}

/// Removes kernels and initramfs files of builds before the last one.
///
/// The last one's stay, for a Space that is being started from them right now; old root file
/// systems stay for the Spaces that were made from them.
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
        if !is_root(&file) && !keep.iter().any(|name| **name == *file) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
