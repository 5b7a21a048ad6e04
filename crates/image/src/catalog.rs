//! The images of one Airlock folder: listed, built, given out, removed.
//!
//! A build takes the image's lock, works in a folder of its own and ends with the rename of the
//! manifest; see [`crate::manifest`] and [`crate::workdir`]. Files carry their digest in their
//! name and are never rewritten: a Space whose disk is an overlay over `root-<digest>.ext4` keeps
//! that very file when the image is built anew.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use airlock_model::{HomePaths, ImageName, SpaceName};
use fs_err as fs;
use tokio_util::sync::CancellationToken;

use crate::builder::{self, Recipe};
use crate::error::{BuildError, ImageError};
use crate::guestd_bin::{self, GuestdBin};
use crate::host::Arch;
use crate::import::{self, Imported};
use crate::job::log_path;
use crate::manifest::{self, Manifest};
use crate::part::Freshness;
use crate::progress::{Phase, Progress};
use crate::tree::{self, TreeError};
use crate::workdir::{FileLock, sweep};

mod imports;
mod trees;

#[cfg(test)]
mod tests;

/// Told what a build does; called from the thread that builds.
pub type OnProgress<'a> = dyn Fn(Progress) + Send + Sync + 'a;

/// A finished image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its name.
    pub name: ImageName,
    /// Its folder.
    pub dir: PathBuf,
    /// The kernel to boot.
    pub kernel: PathBuf,
    /// The initramfs with guestd.
    pub initramfs: PathBuf,
    /// The root file system, raw ext4, to be used as the base of an overlay and never written;
    /// `None` for an image that lives in the initramfs.
    pub root: Option<PathBuf>,
    /// Size of the root file system as the Space sees it; 0 without one.
    pub root_bytes: u64,
    /// SHA-256 over all files, in hexadecimal.
    pub digest: String,
    /// The processor architecture.
    pub arch: Arch,
    /// Version of the kernel's package.
    pub kernel_version: String,
    /// SHA-256 of the guestd inside, in hexadecimal.
    pub guestd_sha256: String,
}

/// One line of the list of images.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ImageInfo {
    /// Its name.
    pub name: ImageName,
    /// Whether it can be used without a build; an imported image's root file system for VM
    /// Spaces is made when the first one needs it.
    pub built: bool,
    /// What it takes on the disk; 0 if not built.
    pub disk_bytes: u64,
    /// What it was imported from, such as `oci:docker.io/library/alpine:3.20` or a path; `None`
    /// for an image that Airlock builds.
    pub source: Option<String>,
    /// SHA-256 over all files, in hexadecimal.
    pub digest: Option<String>,
    /// When it was built, in seconds since the Unix epoch.
    pub created_unix: Option<u64>,
    /// Version of the kernel's package.
    pub kernel_version: Option<String>,
}

/// The images of one Airlock folder.
#[derive(Debug, Clone)]
pub struct Catalog {
    home: HomePaths,
    guestd: Option<GuestdBin>,
}

impl Catalog {
    /// The catalog of `home`; touches nothing.
    pub fn new(home: &HomePaths) -> Self {
        Self {
            home: home.clone(),
            guestd: None,
        }
    }

    /// Uses this guestd instead of the one that belongs to the running program.
    #[must_use]
    pub fn with_guestd(mut self, guestd: GuestdBin) -> Self {
        self.guestd = Some(guestd);
        self
    }

    /// All images: the ones Airlock can build, built or not, and all others found.
    pub fn ls(&self) -> Result<Vec<ImageInfo>, ImageError> {
        let mut names: Vec<ImageName> = Recipe::names().collect();
        match fs::read_dir(self.home.images()) {
            Ok(entries) => names.extend(
                entries
                    .flatten()
                    .filter_map(|entry| ImageName::from_str(entry.file_name().to_str()?).ok()),
            ),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(ImageError::Io(error)),
        }
        names.sort();
        names.dedup();
        names
            .into_iter()
            .map(|name| self.info(name))
            .filter(
                |info| !matches!(info, Ok(info) if !info.built && self.recipe(&info.name).is_none()),
            )
            .collect()
    }

    fn info(&self, name: ImageName) -> Result<ImageInfo, ImageError> {
        let dir = self.home.image(&name);
        let manifest = Manifest::read(&dir).map_err(ImageError::Io)?;
        let whole = manifest.filter(|manifest| manifest.first_damaged(&dir).is_none());
        let imported = Imported::read(&dir)
            .map_err(ImageError::Io)?
            .filter(|imported| imported.is_whole(&dir));
        let imported = imported.as_ref();
        let digest = whole.as_ref().map(Manifest::digest);
        let created_unix = whole.as_ref().map(|manifest| manifest.created_unix);
        Ok(ImageInfo {
            name,
            built: whole.is_some() || imported.is_some(),
            disk_bytes: disk_bytes(&dir),
            source: imported.map(|imported| imported.origin.to_string()),
            digest: digest.or_else(|| imported.map(Imported::digest)),
            created_unix: created_unix.or(imported.map(|imported| imported.created_unix)),
            kernel_version: whole.map(|manifest| manifest.kernel_version),
        })
    }

    /// A finished image, whether or not it is the newest that could be built.
    pub fn get(&self, name: &ImageName) -> Result<Image, ImageError> {
        let dir = self.home.image(name);
        let Some(manifest) = Manifest::read(&dir).map_err(ImageError::Io)? else {
            return Err(match self.recipe(name) {
                Some(_) => ImageError::NotBuilt { name: name.clone() },
                None => self.unknown(name),
            });
        };
        match manifest.first_damaged(&dir) {
            None => Ok(image_of(name, &dir, &manifest)),
            Some((piece, found)) => Err(ImageError::Damaged {
                name: name.clone(),
                path: dir.join(&piece.file),
                expected: piece.bytes,
                found,
            }),
        }
    }

    /// Gives the image, building first what is missing or out of date.
    ///
    /// Blocks for as long as that takes: minutes for a first build with a root file system, under
    /// a second when only guestd changed. Nothing is fetched where all pieces are there.
    pub fn ensure(
        &self,
        name: &ImageName,
        on_progress: &OnProgress<'_>,
        cancel: &CancellationToken,
    ) -> Result<Image, ImageError> {
        self.make(name, Freshness::Cached, false, on_progress, cancel)
    }

    /// Builds the image even if there is one; [`Freshness::Newest`] also asks for newer packages.
    pub fn build(
        &self,
        name: &ImageName,
        freshness: Freshness,
        on_progress: &OnProgress<'_>,
        cancel: &CancellationToken,
    ) -> Result<Image, ImageError> {
        self.make(name, freshness, true, on_progress, cancel)
    }

    fn make(
        &self,
        name: &ImageName,
        freshness: Freshness,
        forced: bool,
        on_progress: &OnProgress<'_>,
        cancel: &CancellationToken,
    ) -> Result<Image, ImageError> {
        let Some(recipe) = self.recipe(name) else {
            // Somebody put it there; it is used as it is.
            return self.get(name);
        };
        let failed = |source| build_failed(&self.home, name, source);
        let guestd = match &self.guestd {
            Some(guestd) => guestd.clone(),
            None => guestd_bin::find().map_err(|error| failed(error.into()))?,
        };
        let guestd_sha256 = manifest::sha256_of(&guestd.bytes);
        let dir = self.home.image(name);
        let current = || {
            let manifest = Manifest::read(&dir).map_err(ImageError::Io)?;
            Ok(manifest.filter(|manifest| {
                manifest.first_damaged(&dir).is_none()
                    && recipe.is_current(manifest, &guestd_sha256, &self.home.cache())
            }))
        };
        if !forced && let Some(manifest) = current()? {
            return Ok(image_of(name, &dir, &manifest));
        }
        for folder in [self.home.cache(), self.home.images()] {
            private_folder(&folder).map_err(ImageError::Io)?;
        }
        let on_wait = || {
            on_progress(Progress {
                image: name.clone(),
                phase: Phase::Waiting,
                fraction: None,
                detail: String::new(),
            });
        };
        let _lock = FileLock::take(&self.lock_path(name), cancel, on_wait).map_err(failed)?;
        // Whoever held the lock may have built it.
        if !forced && let Some(manifest) = current()? {
            return Ok(image_of(name, &dir, &manifest));
        }
        let request = builder::Request {
            home: &self.home,
            name,
            recipe,
            guestd: &guestd.bytes,
            guestd_sha256: &guestd_sha256,
            freshness,
            on_progress,
            cancel,
        };
        let manifest = builder::build(&request).map_err(failed)?;
        Ok(image_of(name, &dir, &manifest))
    }

    /// Removes the image, unless `in_use` names Spaces made from it. Returns the bytes freed.
    ///
    /// What is kept in `cache/` for the next build stays.
    pub fn rm(
        &self,
        name: &ImageName,
        in_use: &dyn Fn(&ImageName) -> Vec<SpaceName>,
    ) -> Result<u64, ImageError> {
        let dir = self.home.image(name);
        if disk_bytes(&dir) == 0 {
            return Err(match self.recipe(name) {
                Some(_) => ImageError::NotBuilt { name: name.clone() },
                None => self.unknown(name),
            });
        }
        private_folder(&self.home.cache()).map_err(ImageError::Io)?;
        let Some(_lock) = FileLock::try_take(&self.lock_path(name)).map_err(ImageError::Io)? else {
            return Err(ImageError::Busy { name: name.clone() });
        };
        // Asked under the lock, so that the answer is as new as can be.
        let spaces = in_use(name);
        if !spaces.is_empty() {
            return Err(ImageError::InUse {
                name: name.clone(),
                spaces,
            });
        }
        let freed = disk_bytes(&dir);
        remove_image(&dir).map_err(ImageError::Io)?;
        Ok(freed)
    }

    /// Removes root file systems that the image no longer has and for which `is_used` says no.
    /// Returns the bytes freed.
    pub fn prune_roots(
        &self,
        name: &ImageName,
        is_used: &dyn Fn(&Path) -> bool,
    ) -> Result<u64, ImageError> {
        let dir = self.home.image(name);
        let Some(_lock) = FileLock::try_take(&self.lock_path(name)).map_err(ImageError::Io)? else {
            return Ok(0);
        };
        let manifest = Manifest::read(&dir).map_err(ImageError::Io)?;
        let current = self
            .recipe(name)
            .map(|recipe| builder::root::current(&dir, recipe, manifest.as_ref()))
            .transpose()
            .map_err(ImageError::Io)?
            .flatten();
        if manifest.is_none() && current.is_none() {
            return Ok(0);
        }
        let current = current.map(|root| root.piece.file);
        let is_named = |file: &OsStr| {
            let in_manifest = manifest
                .iter()
                .flat_map(Manifest::pieces)
                .any(|piece| *piece.file == *file);
            in_manifest || current.as_ref().is_some_and(|name| **name == *file)
        };
        let mut freed = 0;
        for entry in fs::read_dir(&dir).map_err(ImageError::Io)?.flatten() {
            let file = entry.file_name();
            let is_old_root = builder::root::is_root(&file) && !is_named(&file);
            if is_old_root && !is_used(&entry.path()) {
                freed += entry.metadata().map_or(0, |meta| meta.blocks() * 512);
                fs::remove_file(entry.path()).map_err(ImageError::Io)?;
            }
        }
        Ok(freed)
    }

    /// Removes what interrupted builds left; every build does so, too.
    pub fn sweep(&self) -> Result<Vec<PathBuf>, ImageError> {
        sweep(&self.home.cache()).map_err(ImageError::Io)
    }

    fn recipe(&self, name: &ImageName) -> Option<Recipe> {
        Recipe::of(name, &self.home.image(name))
    }

    fn lock_path(&self, name: &ImageName) -> PathBuf {
        self.home.cache().join(format!("build-{name}.lock"))
    }

    fn unknown(&self, name: &ImageName) -> ImageError {
        let known = self.ls().unwrap_or_default();
        let known = known
            .into_iter()
            .map(|info| info.name.to_string())
            .collect();
        ImageError::Unknown {
            name: name.clone(),
            known,
        }
    }
}

fn build_failed(home: &HomePaths, name: &ImageName, source: BuildError) -> ImageError {
    let name = name.clone();
    match source {
        BuildError::Cancelled => ImageError::Cancelled { name },
        BuildError::MissingTools(source) => ImageError::MissingTools { name, source },
        BuildError::Guestd(source) => ImageError::Guestd { name, source },
        BuildError::UnsupportedHost { .. }
        | BuildError::Command(_)
        | BuildError::NoPackage { .. }
        | BuildError::NotInPackage { .. }
        | BuildError::Module { .. }
        | BuildError::Tree(_)
        | BuildError::Io(_) => {
            let log = log_path(home, &name);
            ImageError::Build { name, log, source }
        }
    }
}

fn tree_failed(name: &ImageName, source: TreeError) -> ImageError {
    let name = name.clone();
    match source {
        TreeError::Cancelled => ImageError::Cancelled { name },
        TreeError::BadPath { .. }
        | TreeError::NotBelowFolder { .. }
        | TreeError::BadHardLink { .. }
        | TreeError::TooManyFiles { .. }
        | TreeError::Digest { .. }
        | TreeError::Unsupported { .. }
        | TreeError::Archive { .. }
        | TreeError::Ext4 { .. }
        | TreeError::Write { .. }
        | TreeError::Io(_) => ImageError::Tree { name, source },
    }
}

fn image_of(name: &ImageName, dir: &Path, manifest: &Manifest) -> Image {
    let root = manifest.root.as_ref().map(|root| &root.piece);
    Image {
        name: name.clone(),
        dir: dir.to_owned(),
        kernel: dir.join(&manifest.kernel.file),
        initramfs: dir.join(&manifest.initramfs.file),
        root: root.map(|root| dir.join(&root.file)),
        root_bytes: root.map_or(0, |root| root.bytes),
        digest: manifest.digest(),
        arch: manifest.arch,
        kernel_version: manifest.kernel_version.clone(),
        guestd_sha256: manifest.guestd_sha256.clone(),
    }
}

fn private_folder(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// Removes an image's folder.
fn remove_image(dir: &Path) -> io::Result<()> {
    // The descriptions go first: from here on there is no image, whatever happens.
    for file in [
        manifest::FILE_NAME,
        builder::root::FILE_NAME,
        import::FILE_NAME,
    ] {
        builder::remove_if_there(&dir.join(file))?;
    }
    for tree in tree::all(dir)? {
        tree::forget(&tree)?;
    }
    tree::sweep(dir)?;
    fs::remove_dir_all(dir)
}

/// What an image's folder takes on the disk; a root file system is mostly holes.
fn disk_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    entries
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?, entry.path())))
        .map(|(meta, path)| {
            if meta.is_dir() {
                tree::disk_bytes(&path)
            } else {
                meta.blocks() * 512
            }
        })
        .sum()
}
