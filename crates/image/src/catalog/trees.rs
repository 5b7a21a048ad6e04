//! Images as folders, for Spaces that are containers.
//!
//! A container needs the root file system alone: no kernel, no initramfs and no guestd, which the
//! runtime brings. So a tree is made from the pieces it needs and asks for nothing else.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};

use airlock_model::ImageName;
use fs_err as fs;
use tokio_util::sync::CancellationToken;

use crate::builder::{Recipe, root};
use crate::busybox::Busybox;
use crate::catalog::{Catalog, Image, OnProgress, build_failed, private_folder, tree_failed};
use crate::error::ImageError;
use crate::import::Imported;
use crate::job::Job;
use crate::manifest::{Manifest, sha256_of_file};
use crate::part::Freshness;
use crate::progress::{Phase, Progress};
use crate::tree::record::Record;
use crate::tree::small::Parts;
use crate::tree::writer::TreeWriter;
use crate::tree::{self, Owners, Plan, Tree, TreeError};
use crate::workdir::FileLock;

#[cfg(test)]
mod tests;

/// How many files pass between two reports.
const REPORT_FILES: u64 = 500;

/// What a tree is made from.
enum Source {
    /// Busybox and what goes with it.
    Small(Parts),
    /// A raw ext4 file.
    Root { file: PathBuf, sha256: String },
    /// The layers of an imported image in this folder.
    Layers { dir: PathBuf, imported: Imported },
}

impl Source {
    fn recipe(&self) -> String {
        match self {
            Self::Small(_) => Parts::recipe(),
            Self::Root { .. } => "ext4".to_owned(),
            Self::Layers { .. } => "layers".to_owned(),
        }
    }

    fn digest(&self) -> String {
        match self {
            Self::Small(parts) => parts.digest(),
            Self::Root { sha256, .. } => sha256.clone(),
            Self::Layers { imported, .. } => imported.digest(),
        }
    }

    fn fill(
        &self,
        writer: &mut TreeWriter<'_>,
        talk: &Talk<'_>,
        cancel: &CancellationToken,
    ) -> Result<(), TreeError> {
        match self {
            Self::Small(parts) => parts.write(writer),
            Self::Root { file, sha256 } => {
                verify(file, sha256, cancel)?;
                tree::ext4::copy(file, writer, &|files| talk.files(files))
            }
            Self::Layers { dir, imported } => {
                for (file, layer) in imported.layers(dir) {
                    let layer = imported.layer(&file, layer);
                    layer.apply(writer, &|files| talk.files(files))?;
                }
                Ok(())
            }
        }
    }
}

/// Fails unless the file is what its digest says.
fn verify(file: &Path, sha256: &str, cancel: &CancellationToken) -> Result<(), TreeError> {
    let found = sha256_of_file(file, &mut |_| {
        if cancel.is_cancelled() {
            Err(TreeError::Cancelled)
        } else {
            Ok(())
        }
    })?
    .to_string();
    if found == sha256 {
        return Ok(());
    }
    Err(TreeError::Digest {
        file: file.display().to_string(),
        expected: sha256.to_owned(),
        found,
    })
}

/// Says how far an unpacking is.
struct Talk<'a> {
    name: &'a ImageName,
    on_progress: &'a OnProgress<'a>,
    reported: Cell<u64>,
}

impl Talk<'_> {
    fn say(&self, phase: Phase, detail: String) {
        (self.on_progress)(Progress {
            image: self.name.clone(),
            phase,
            fraction: None,
            detail,
        });
    }

    fn files(&self, files: u64) {
        if files >= self.reported.get() + REPORT_FILES {
            self.reported.set(files);
            self.say(Phase::Unpacking, format!("{files} files"));
        }
    }
}

impl Catalog {
    /// Gives the image's root file system as a folder, fetching and unpacking what is missing.
    ///
    /// The one call for a container: it asks for no kernel, no initramfs and no guestd. Blocks
    /// like [`Catalog::ensure`] the first time; after that it reads a small file.
    pub fn ensure_tree(
        &self,
        name: &ImageName,
        owners: Owners,
        on_progress: &OnProgress<'_>,
        cancel: &CancellationToken,
    ) -> Result<Tree, ImageError> {
        if let Some(tree) = self.current_tree(name, owners)? {
            return Ok(tree);
        }
        let talk = Talk {
            name,
            on_progress,
            reported: Cell::new(0),
        };
        let _lock = self.lock_for_tree(&talk, cancel)?;
        if let Some(tree) = self.current_tree(name, owners)? {
            return Ok(tree);
        }
        let source = match self.source(name)? {
            Some(source) => source,
            None => self.make_source(name, on_progress, cancel)?,
        };
        self.make_tree(&source, owners, &talk, cancel)
    }

    /// Fetches or builds what [`Catalog::ensure_tree`] unpacks, and unpacks nothing.
    ///
    /// For an ordinary user whose files of many owners are written by another process, inside a
    /// user namespace in which nothing can be built.
    pub fn ensure_tree_source(
        &self,
        name: &ImageName,
        on_progress: &OnProgress<'_>,
        cancel: &CancellationToken,
    ) -> Result<(), ImageError> {
        if self.source(name)?.is_some() {
            return Ok(());
        }
        let talk = Talk {
            name,
            on_progress,
            reported: Cell::new(0),
        };
        let _lock = self.lock_for_tree(&talk, cancel)?;
        if self.source(name)?.is_none() {
            self.make_source(name, on_progress, cancel)?;
        }
        Ok(())
    }

    /// Gives the root file system of this very image as a folder, unpacking it the first time.
    ///
    /// Unlike [`Catalog::ensure_tree`] it takes the image's own root, even if that is no longer the
    /// newest.
    pub fn unpacked(
        &self,
        image: &Image,
        owners: Owners,
        on_progress: &OnProgress<'_>,
        cancel: &CancellationToken,
    ) -> Result<PathBuf, ImageError> {
        let name = &image.name;
        let is_imported = self.recipe(name) == Some(Recipe::Imported);
        let Some(file) = image.root.as_ref().filter(|_| !is_imported) else {
            // No file of the image has it: its parts or its layers do.
            return Ok(self.ensure_tree(name, owners, on_progress, cancel)?.path);
        };
        let source = Source::Root {
            file: file.clone(),
            sha256: self.sha256_of_root(name, file).map_err(ImageError::Io)?,
        };
        if let Some(tree) = self.existing(name, &source, owners)? {
            return Ok(tree.path);
        }
        let talk = Talk {
            name,
            on_progress,
            reported: Cell::new(0),
        };
        let _lock = self.lock_for_tree(&talk, cancel)?;
        Ok(self.make_tree(&source, owners, &talk, cancel)?.path)
    }

    /// Removes trees that the image no longer has and for which `is_used` says no.
    /// Returns the bytes freed.
    pub fn prune_trees(
        &self,
        name: &ImageName,
        is_used: &dyn Fn(&Path) -> bool,
    ) -> Result<u64, ImageError> {
        let dir = self.home.image(name);
        let Some(_lock) = FileLock::try_take(&self.lock_path(name)).map_err(ImageError::Io)? else {
            return Ok(0);
        };
        let current = match self.source(name) {
            Ok(Some(source)) => source.digest(),
            // Without one there is nothing to compare with, and nothing is removed.
            Ok(None)
            | Err(
                ImageError::NoRoot { .. }
                | ImageError::NotBuilt { .. }
                | ImageError::Unknown { .. }
                | ImageError::Damaged { .. },
            ) => return Ok(0),
            Err(error) => return Err(error),
        };
        let mut freed = 0;
        for path in tree::all(&dir).map_err(ImageError::Io)? {
            let record = Record::read(&path).map_err(ImageError::Io)?;
            let is_current = record.is_some_and(|record| record.digest == current);
            if !is_current && !is_used(&path) {
                freed += tree::disk_bytes(&path);
                tree::forget(&path).map_err(ImageError::Io)?;
            }
        }
        Ok(freed)
    }

    /// By the manifest, or by the file itself where the image has another root by now.
    fn sha256_of_root(&self, name: &ImageName, file: &Path) -> io::Result<String> {
        let root = Manifest::read(&self.home.image(name))?.and_then(|manifest| manifest.root);
        match root.filter(|root| file.ends_with(&root.piece.file)) {
            Some(root) => Ok(root.piece.sha256),
            None => Ok(sha256_of_file(file, &mut |_| Ok::<(), io::Error>(()))?.to_string()),
        }
    }

    fn lock_for_tree(
        &self,
        talk: &Talk<'_>,
        cancel: &CancellationToken,
    ) -> Result<FileLock, ImageError> {
        for folder in [self.home.cache(), self.home.images()] {
            private_folder(&folder).map_err(ImageError::Io)?;
        }
        let on_wait = || talk.say(Phase::Waiting, String::new());
        FileLock::take(&self.lock_path(talk.name), cancel, on_wait)
            .map_err(|source| build_failed(&self.home, talk.name, source))
    }

    /// The tree of what the image is made from today, if it was made before.
    fn current_tree(&self, name: &ImageName, owners: Owners) -> Result<Option<Tree>, ImageError> {
        let dir = self.home.image(name);
        let Some(source) = self.source(name)? else {
            return match self.recipe(name) {
                // The cache is gone, but a tree needs nothing of it.
                Some(Recipe::Tiny) => {
                    tree::newest(&dir, &Parts::recipe(), owners).map_err(ImageError::Io)
                }
                Some(Recipe::Linux | Recipe::Imported) | None => Ok(None),
            };
        };
        self.existing(name, &source, owners)
    }

    /// The tree of `source`, if it was made before.
    fn existing(
        &self,
        name: &ImageName,
        source: &Source,
        owners: Owners,
    ) -> Result<Option<Tree>, ImageError> {
        let (recipe, digest) = (source.recipe(), source.digest());
        let plan = Plan {
            dir: &self.home.image(name),
            recipe: &recipe,
            digest: &digest,
            owners,
        };
        let path = plan.find().map_err(ImageError::Io)?;
        Ok(path.map(|path| tree_of(path, source)))
    }

    /// What the image's tree is made from, as far as it is on this disk.
    fn source(&self, name: &ImageName) -> Result<Option<Source>, ImageError> {
        let dir = self.home.image(name);
        let failed = |source| build_failed(&self.home, name, source);
        match self.recipe(name) {
            Some(Recipe::Tiny) => Busybox::cached(&self.home.cache())
                .map(|busybox| busybox.parts().map(Source::Small))
                .transpose()
                .map_err(failed),
            Some(Recipe::Linux) => {
                let manifest = Manifest::read(&dir).map_err(ImageError::Io)?;
                let root = root::current(&dir, Recipe::Linux, manifest.as_ref())
                    .map_err(ImageError::Io)?;
                Ok(root.map(|root| Source::Root {
                    file: dir.join(&root.piece.file),
                    sha256: root.piece.sha256,
                }))
            }
            Some(Recipe::Imported) => {
                let imported = Imported::read(&dir).map_err(ImageError::Io)?;
                Ok(imported.map(|imported| Source::Layers { dir, imported }))
            }
            // Somebody put it there; it is used as it is.
            None => {
                let image = self.get(name)?;
                let manifest = Manifest::read(&dir).map_err(ImageError::Io)?;
                let sha256 = manifest
                    .and_then(|manifest| manifest.root)
                    .map(|root| root.piece.sha256);
                match (image.root, sha256) {
                    (Some(file), Some(sha256)) => Ok(Some(Source::Root { file, sha256 })),
                    _ => Err(ImageError::NoRoot { name: name.clone() }),
                }
            }
        }
    }

    /// Fetches or builds what the tree is made from; the caller holds the image's lock.
    fn make_source(
        &self,
        name: &ImageName,
        on_progress: &OnProgress<'_>,
        cancel: &CancellationToken,
    ) -> Result<Source, ImageError> {
        let dir = self.home.image(name);
        let failed = |source| build_failed(&self.home, name, source);
        let job = Job::start(&self.home, name, on_progress, cancel).map_err(failed)?;
        match self.recipe(name) {
            Some(Recipe::Tiny) => Busybox::obtain(&job, Freshness::Cached)
                .and_then(|busybox| busybox.parts())
                .map(Source::Small)
                .map_err(failed),
            Some(Recipe::Linux) => {
                let manifest = Manifest::read(&dir).map_err(ImageError::Io)?;
                let root = root::alone(&job, &dir, manifest.as_ref()).map_err(failed)?;
                Ok(Source::Root {
                    file: dir.join(&root.piece.file),
                    sha256: root.piece.sha256,
                })
            }
            // The layers of an imported image are there or it is no image.
            Some(Recipe::Imported) | None => Err(ImageError::NoRoot { name: name.clone() }),
        }
    }

    fn make_tree(
        &self,
        source: &Source,
        owners: Owners,
        talk: &Talk<'_>,
        cancel: &CancellationToken,
    ) -> Result<Tree, ImageError> {
        if let Some(tree) = self.existing(talk.name, source, owners)? {
            return Ok(tree);
        }
        let dir = self.home.image(talk.name);
        let (recipe, digest) = (source.recipe(), source.digest());
        let plan = Plan {
            dir: &dir,
            recipe: &recipe,
            digest: &digest,
            owners,
        };
        fs::create_dir_all(&dir).map_err(ImageError::Io)?;
        talk.say(Phase::Unpacking, String::new());
        let path = plan
            .make(&|writer| source.fill(writer, talk, cancel), cancel)
            .map_err(|source| tree_failed(talk.name, source))?;
        Ok(tree_of(path, source))
    }
}

fn tree_of(path: PathBuf, source: &Source) -> Tree {
    let (env, workdir) = match source {
        Source::Layers { imported, .. } => (imported.env.clone(), imported.workdir.clone()),
        Source::Small(_) | Source::Root { .. } => (Vec::new(), None),
    };
    Tree {
        path,
        digest: source.digest(),
        env,
        workdir,
    }
}
