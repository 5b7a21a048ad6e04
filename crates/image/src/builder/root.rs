//! The root file system of an image: made once, kept while its recipe stands.
//!
//! It usually stands in the manifest. A container needs neither kernel nor initramfs, so an image
//! that only containers use has a root and no manifest; `root.json` then says which it is.

use std::ffi::OsStr;
use std::io;
use std::io::Write as _;
use std::path::Path;

use fs_err as fs;

use crate::builder::{Recipe, Staged, stage};
use crate::error::BuildError;
use crate::import::{self, Imported};
use crate::job::Job;
use crate::manifest::{Manifest, RootPiece};
use crate::part::Freshness;
use crate::progress::Phase;
use crate::rootfs;
use crate::workdir::sync_folder;

/// The description of a root that no manifest names.
pub(crate) const FILE_NAME: &str = "root.json";

/// Whether a file of an image's folder is a root file system, of now or of before.
pub(crate) fn is_root(file: &OsStr) -> bool {
    file.as_encoded_bytes().starts_with(b"root-")
}

/// The root that the image of `recipe` in `dir` has, if it is whole and today's recipe made it.
pub(crate) fn current(
    dir: &Path,
    recipe: Recipe,
    manifest: Option<&Manifest>,
) -> io::Result<Option<RootPiece>> {
    let is_good = |root: &RootPiece| {
        recipe.made(root)
            && fs::metadata(dir.join(&root.piece.file))
                .is_ok_and(|meta| meta.len() == root.piece.bytes)
    };
    if let Some(root) = manifest.and_then(|manifest| manifest.root.as_ref())
        && is_good(root)
    {
        return Ok(Some(root.clone()));
    }
    match fs::read(dir.join(FILE_NAME)) {
        Ok(text) => Ok(serde_json::from_slice(&text).ok().filter(is_good)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The image's own root where it is current, else a new one to install.
pub(crate) fn obtain(
    job: &Job<'_>,
    recipe: Recipe,
    dir: &Path,
    freshness: Freshness,
    manifest: Option<&Manifest>,
) -> Result<(RootPiece, Option<Staged>), BuildError> {
    let is_for_ever = match recipe {
        Recipe::Tiny | Recipe::Linux => false,
        Recipe::Imported => true,
    };
    match (current(dir, recipe, manifest)?, freshness) {
        (Some(root), Freshness::Cached) => Ok((root, None)),
        (Some(root), Freshness::Newest) if is_for_ever => Ok((root, None)),
        (Some(_), Freshness::Newest) | (None, _) => {
            let (made, recipe) = match Imported::read(dir)?.filter(|_| is_for_ever) {
                Some(imported) => {
                    let made = import::root::build(job, &imported, dir)?;
                    (made, import::root::RECIPE)
                }
                None => (rootfs::build(job)?, rootfs::RECIPE),
            };
            job.report(Phase::Publishing, None, "root file system");
            let staged = stage(job, "root", &made.file)?;
            let piece = staged.piece.clone();
            Ok((
                RootPiece {
                    piece,
                    recipe,
                    suite: made.suite,
                },
                Some(staged),
            ))
        }
    }
}

/// Gives the root of an image without making the rest; the caller holds the image's lock.
pub(crate) fn alone(
    job: &Job<'_>,
    dir: &Path,
    manifest: Option<&Manifest>,
) -> Result<RootPiece, BuildError> {
    let (root, staged) = obtain(job, Recipe::Linux, dir, Freshness::Cached, manifest)?;
    if let Some(staged) = staged {
        fs::create_dir_all(dir)?;
        staged.install(dir)?;
        let mut file = tempfile::Builder::new().prefix(".root-").tempfile_in(dir)?;
        serde_json::to_writer_pretty(&mut file, &root).map_err(io::Error::from)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        sync_folder(dir)?;
        file.persist(dir.join(FILE_NAME))
            .map_err(|error| error.error)?;
        sync_folder(dir)?;
    }
    Ok(root)
}
