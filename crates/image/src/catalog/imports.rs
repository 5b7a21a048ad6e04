//! Images from elsewhere become images of the catalog.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use airlock_model::ImageName;
use fs_err as fs;
use tokio_util::sync::CancellationToken;

use crate::catalog::{Catalog, OnProgress, private_folder};
use crate::error::ImageError;
use crate::host::Arch;
use crate::import::registry::{self, Pulled};
use crate::import::source::stem;
use crate::import::{
    self, FORMAT, ImageSource, ImportError, Imported, LayerPiece, Origin, archive, folder, name_of,
};
use crate::part::{Freshness, unix_now};
use crate::progress::{Phase, Progress};
use crate::workdir::{BuildDir, FileLock};

#[cfg(test)]
mod tests;

/// How many files pass between two reports.
const REPORT_FILES: u64 = 500;

impl Catalog {
    /// Makes an image of the catalog out of `source` and gives its name.
    ///
    /// The name tells the content, so the same content is imported once. A reference that was
    /// imported before is not asked for again; [`Catalog::import_newest`] does that. Blocks until
    /// all layers are here; trees and root file systems are made when a Space needs them.
    pub fn import(
        &self,
        source: &ImageSource,
        on_progress: &OnProgress<'_>,
        cancel: &CancellationToken,
    ) -> Result<ImageName, ImageError> {
        self.import_as(source, Freshness::Cached, on_progress, cancel)
    }

    /// The same, but asks the registry what the reference means today.
    pub fn import_newest(
        &self,
        source: &ImageSource,
        on_progress: &OnProgress<'_>,
        cancel: &CancellationToken,
    ) -> Result<ImageName, ImageError> {
        self.import_as(source, Freshness::Newest, on_progress, cancel)
    }

    fn import_as(
        &self,
        source: &ImageSource,
        freshness: Freshness,
        on_progress: &OnProgress<'_>,
        cancel: &CancellationToken,
    ) -> Result<ImageName, ImageError> {
        let import = Import {
            catalog: self,
            freshness,
            on_progress,
            cancel,
        };
        let imported = match source {
            ImageSource::Named(name) => return Ok(name.clone()),
            ImageSource::Oci(reference) => import.oci(reference),
            ImageSource::Folder(path) => import.folder(path),
            ImageSource::Archive(path) => import.archive(path),
        };
        imported.map_err(|error| ImageError::Import {
            image: source.to_string(),
            source: Box::new(error),
        })
    }

    /// The newest image that was imported from this reference and is whole.
    fn imported_from(&self, reference: &str) -> Option<ImageName> {
        let origin = Origin::Oci(reference.to_owned());
        fs::read_dir(self.home.images())
            .ok()?
            .flatten()
            .filter_map(|entry| {
                let name = ImageName::new(entry.file_name().to_str()?).ok()?;
                let imported = Imported::read(&entry.path()).ok()??;
                let is_it = imported.origin == origin
                    && imported.arch == Arch::HOST
                    && imported.is_whole(&entry.path());
                // The file's own time: two imports may fall into the same second.
                let description = entry.path().join(import::FILE_NAME);
                let imported_at = fs::metadata(description).ok()?.modified().ok()?;
                is_it.then_some((imported_at, name))
            })
            .max()
            .map(|(_, name)| name)
    }
}

struct Import<'a> {
    catalog: &'a Catalog,
    freshness: Freshness,
    on_progress: &'a OnProgress<'a>,
    cancel: &'a CancellationToken,
}

impl Import<'_> {
    fn oci(&self, text: &str) -> Result<ImageName, ImportError> {
        let reference = registry::whole_reference(text)?;
        let spelled = reference.to_string();
        if self.freshness == Freshness::Cached
            && let Some(name) = self.catalog.imported_from(&spelled)
        {
            return Ok(name);
        }
        self.folders()?;
        let shown = name_of("oci", text, "")?;
        let on_fetch = |detail: &str, fraction: Option<f32>| {
            self.say(&shown, Phase::Fetching, fraction, detail);
        };
        let cache = self.catalog.home.cache();
        let Pulled { imported, files } =
            registry::pull(&cache, &reference, &on_fetch, self.cancel)?;
        // The digest of a reference by digest would fill the name.
        let text = text.split('@').next().unwrap_or(text);
        self.publish("oci", text, &imported, &files)
    }

    fn folder(&self, path: &Path) -> Result<ImageName, ImportError> {
        self.folders()?;
        let path = real(path)?;
        let text = stem(&path);
        let shown = name_of("folder", &text, "")?;
        let build = BuildDir::make(&self.catalog.home.cache(), self.cancel)?;
        let file = build.folder("layer")?.join("layer");
        let on_file = |files: u64| {
            if files.is_multiple_of(REPORT_FILES) {
                self.say(&shown, Phase::Fetching, None, &format!("{files} files"));
            }
        };
        let home = self.catalog.home.root();
        let layer = folder::pack(&path, home, &file, &on_file, self.cancel)?;
        let content = layer.diff_sha256.clone();
        let content = content.unwrap_or_else(|| layer.piece.sha256.clone());
        self.single("folder", &text, Origin::Folder(path), content, layer, file)
    }

    fn archive(&self, path: &Path) -> Result<ImageName, ImportError> {
        self.folders()?;
        let path = real(path)?;
        let text = stem(&path);
        let shown = name_of("tar", &text, "")?;
        let build = BuildDir::make(&self.catalog.home.cache(), self.cancel)?;
        let file = build.folder("layer")?.join("layer");
        let on_fraction = |fraction| self.say(&shown, Phase::Fetching, Some(fraction), "");
        let layer = archive::take(&path, &file, &on_fraction, self.cancel)?;
        let content = layer.piece.sha256.clone();
        self.single("tar", &text, Origin::Archive(path), content, layer, file)
    }

    fn single(
        &self,
        kind: &str,
        text: &str,
        origin: Origin,
        content: String,
        layer: LayerPiece,
        file: PathBuf,
    ) -> Result<ImageName, ImportError> {
        let files = BTreeMap::from([(layer.piece.sha256.clone(), file)]);
        let imported = Imported {
            format: FORMAT,
            origin,
            content,
            arch: Arch::HOST,
            layers: vec![layer],
            env: Vec::new(),
            workdir: None,
            created_unix: unix_now(),
        };
        self.publish(kind, text, &imported, &files)
    }

    fn publish(
        &self,
        kind: &str,
        text: &str,
        imported: &Imported,
        files: &BTreeMap<String, PathBuf>,
    ) -> Result<ImageName, ImportError> {
        let name = name_of(kind, text, &imported.content)?;
        let on_wait = || self.say(&name, Phase::Waiting, None, "");
        let lock = self.catalog.lock_path(&name);
        let _lock = FileLock::take(&lock, self.cancel, on_wait)?;
        let dir = self.catalog.home.image(&name);
        let there = Imported::read(&dir)?;
        if there
            .as_ref()
            .is_some_and(|there| there.content != imported.content)
        {
            // The digits in a name are few enough for somebody to make two images of one name.
            return Err(ImportError::NameTaken { name });
        }
        let is_there = there.is_some_and(|there| there.is_whole(&dir));
        // The description is written anew for the time of the import: the newest one counts.
        if !is_there || self.freshness == Freshness::Newest {
            self.say(&name, Phase::Publishing, None, "");
            imported.publish(&dir, files)?;
        }
        Ok(name)
    }

    fn folders(&self) -> Result<(), ImportError> {
        private_folder(&self.catalog.home.cache())?;
        private_folder(&self.catalog.home.images())?;
        Ok(())
    }

    fn say(&self, name: &ImageName, phase: Phase, fraction: Option<f32>, detail: &str) {
        (self.on_progress)(Progress {
            image: name.clone(),
            phase,
            fraction: fraction.map(|fraction| fraction.clamp(0.0, 1.0)),
            detail: detail.to_owned(),
        });
    }
}

fn real(path: &Path) -> Result<PathBuf, ImportError> {
    std::fs::canonicalize(path).map_err(|source| ImportError::Read {
        path: path.to_owned(),
        source,
    })
}
