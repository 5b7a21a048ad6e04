//! Images made elsewhere: from a registry, from a folder, from an archive.
//!
//! Whatever it was, an imported image is a list of layers: archives in its own folder, described by
//! `source.json`. Its tree is made by applying them in order; its root file system for VM Spaces
//! is made from such a tree when the first one needs it. So it outlives the cache and what it was
//! made from, and its name tells its content: the same content has the same name.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use airlock_digest::FileHasher;
use airlock_model::{ImageName, NameError};
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::host::Arch;
use crate::job::link_or_copy;
use crate::manifest::Piece;
use crate::tree::layer::Layer;
use crate::workdir::sync_folder;

pub(crate) mod archive;
mod error;
pub(crate) mod folder;
pub(crate) mod registry;
pub(crate) mod root;
pub(crate) mod source;

pub use error::ImportError;
pub use source::{ImageSource, SourceError};

/// Raised when older programs cannot read the description any more.
pub(crate) const FORMAT: u32 = 1;

/// The description of an imported image.
pub(crate) const FILE_NAME: &str = "source.json";

/// Digits of a digest that stand in the name of an image and of a layer's file.
const IMAGE_DIGITS: usize = 12;
const LAYER_DIGITS: usize = 16;

const LAYER_PREFIX: &str = "layer-";

/// What a name may have of the source, so that the whole stays a legal name.
const SLUG_BYTES: usize = 40;

/// What an imported image consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Imported {
    pub(crate) format: u32,
    pub(crate) origin: Origin,
    /// SHA-256 of what was imported, in hexadecimal: the manifest, the archive or the folder's
    /// content.
    pub(crate) content: String,
    pub(crate) arch: Arch,
    /// From the lowest to the highest.
    pub(crate) layers: Vec<LayerPiece>,
    /// The environment of the image's programs, in order.
    pub(crate) env: Vec<(String, String)>,
    pub(crate) workdir: Option<String>,
    pub(crate) created_unix: u64,
}

/// Where an imported image comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// A registry, with the whole reference.
    Oci(String),
    /// A folder of this host.
    Folder(PathBuf),
    /// An archive of this host.
    Archive(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oci(reference) => write!(f, "oci:{reference}"),
            Self::Folder(path) | Self::Archive(path) => path.display().fmt(f),
        }
    }
}

/// One layer in the image's folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerPiece {
    #[serde(flatten)]
    pub(crate) piece: Piece,
    /// SHA-256 of the archive without its compression, where that is known.
    pub(crate) diff_sha256: Option<String>,
}

impl LayerPiece {
    /// A layer of this digest.
    pub(crate) fn new(sha256: String, bytes: u64, diff_sha256: Option<String>) -> Self {
        Self {
            piece: Piece {
                file: format!("{LAYER_PREFIX}{}", &sha256[..LAYER_DIGITS]),
                bytes,
                sha256,
            },
            diff_sha256,
        }
    }
}

impl Imported {
    /// Reads the description in an image's folder; `None` if it has none or one of another format.
    pub(crate) fn read(dir: &Path) -> io::Result<Option<Self>> {
        match fs::read(dir.join(FILE_NAME)) {
            Ok(text) => Ok(serde_json::from_slice::<Self>(&text)
                .ok()
                .filter(|imported| imported.format == FORMAT)),
            Err(error)
                if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory]
                    .contains(&error.kind()) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the layers are there with their right sizes.
    pub(crate) fn is_whole(&self, dir: &Path) -> bool {
        self.layers.iter().all(|LayerPiece { piece, .. }| {
            fs::metadata(dir.join(&piece.file)).is_ok_and(|meta| meta.len() == piece.bytes)
        })
    }

    /// SHA-256 over the layers' digests: what the image's tree is made from.
    pub(crate) fn digest(&self) -> String {
        let mut hasher = FileHasher::new();
        for layer in &self.layers {
            hasher.update(layer.piece.sha256.as_bytes());
            hasher.update(b"\n");
        }
        hasher.finish().to_string()
    }

    /// The layers of the image in `dir`, to be applied in order.
    pub(crate) fn layers<'a>(&'a self, dir: &Path) -> Vec<(PathBuf, &'a LayerPiece)> {
        self.layers
            .iter()
            .map(|layer| (dir.join(&layer.piece.file), layer))
            .collect()
    }

    /// One of them as something to apply.
    pub(crate) fn layer<'a>(&self, file: &'a Path, layer: &'a LayerPiece) -> Layer<'a> {
        Layer {
            file,
            sha256: &layer.piece.sha256,
            diff_sha256: layer.diff_sha256.as_deref(),
            has_whiteouts: match self.origin {
                Origin::Oci(_) => true,
                Origin::Folder(_) | Origin::Archive(_) => false,
            },
        }
    }

    /// Puts the layers, which `files` gives by their digest, into the image's folder and then the
    /// description; the caller holds the image's lock.
    pub(crate) fn publish(&self, dir: &Path, files: &BTreeMap<String, PathBuf>) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        for LayerPiece { piece, .. } in &self.layers {
            let target = dir.join(&piece.file);
            let is_there = fs::metadata(&target).is_ok_and(|meta| meta.len() == piece.bytes);
            if is_there {
                continue;
            }
            let file = files.get(&piece.sha256).ok_or(io::ErrorKind::NotFound)?;
            let staged = dir.join(format!(".{}", piece.file));
            crate::builder::remove_if_there(&staged)?;
            link_or_copy(file, &staged)?;
            fs::File::open(&staged)?.sync_all()?;
            fs::rename(&staged, &target)?;
        }
        let mut file = tempfile::Builder::new()
            .prefix(".source-")
            .tempfile_in(dir)?;
        serde_json::to_writer_pretty(&mut file, self)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        sync_folder(dir)?;
        file.persist(dir.join(FILE_NAME))?;
        sync_folder(dir)
    }
}

/// Whether a file of an image's folder belongs to what was imported.
pub(crate) fn is_ours(file: &std::ffi::OsStr) -> bool {
    *file == *FILE_NAME || file.as_encoded_bytes().starts_with(LAYER_PREFIX.as_bytes())
}

/// The name of an image of this content: `oci-alpine-3-20-1a2b3c4d5e6f`.
pub(crate) fn name_of(kind: &str, text: &str, content: &str) -> Result<ImageName, NameError> {
    let slug = slug(text);
    let digits = &content[..IMAGE_DIGITS.min(content.len())];
    let parts = [kind, &slug, digits];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    ImageName::new(parts.join("-"))
}

/// What of a text can stand in a name.
fn slug(text: &str) -> String {
    let mut slug = String::new();
    for found in text.chars() {
        let found = found.to_ascii_lowercase();
        if found.is_ascii_lowercase() || found.is_ascii_digit() {
            slug.push(found);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
        if slug.len() == SLUG_BYTES {
            break;
        }
    }
    slug.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_legal_whatever_the_source_is_called() {
        let content = "0123456789abcdef";
        for (kind, text, name) in [
            ("oci", "alpine:3.20", "oci-alpine-3-20-0123456789ab"),
            ("folder", "My Röot__fs", "folder-my-r-ot-fs-0123456789ab"),
            ("tar", "...", "tar-0123456789ab"),
            ("tar", "", "tar-0123456789ab"),
        ] {
            assert_eq!(name_of(kind, text, content).unwrap().as_str(), name);
        }
        let long = name_of("folder", &"x-".repeat(100), content).unwrap();
        assert!(long.as_str().len() <= 63 && !long.as_str().contains("--"));
    }
}
