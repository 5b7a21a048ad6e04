//! What a person names as an image.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use airlock_model::{ImageName, NameError};
use oci_client::{ParseError, Reference};

/// How a reference to a registry begins.
const REGISTRY: &str = "oci:";

/// How the names of archives end.
const ARCHIVES: [&str; 5] = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"];

/// Where an image comes from.
///
/// As text: `oci:REFERENCE`, a path (it begins with `/`, `./` or `../`, is `.` or `..`, or ends
/// like an archive), else the name of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSource {
    /// An image of the catalog, built or imported before.
    Named(ImageName),
    /// A reference to an image in a registry, such as `alpine:3.20`.
    Oci(String),
    /// A folder that holds a root file system.
    Folder(PathBuf),
    /// An archive of a root file system.
    Archive(PathBuf),
}

/// Why a text names no image.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It is neither a name nor something else.
    #[error("{text:?} names no image")]
    Name {
        /// The text.
        text: String,
        /// Why it is no name.
        source: NameError,
    },
    /// It is no reference to a registry.
    #[error("{text:?} is no reference to an image in a registry")]
    Reference {
        /// The text, without `oci:`.
        text: String,
        /// Why not.
        source: ParseError,
    },
}

impl SourceError {
    /// What a person can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Name { .. } => "images are names such as linux, oci:REFERENCE, folders \
                                  (./folder) or archives (rootfs.tar, .tar.gz, .tar.zst)"
                .into(),
            Self::Reference { .. } => {
                "references are such as oci:alpine:3.20 or oci:registry.example/team/app:1".into()
            }
        }
    }
}

impl FromStr for ImageSource {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        if let Some(reference) = text.strip_prefix(REGISTRY) {
            return match Reference::from_str(reference) {
                Ok(_) => Ok(Self::Oci(reference.to_owned())),
                Err(source) => Err(SourceError::Reference {
                    text: reference.to_owned(),
                    source,
                }),
            };
        }
        if ARCHIVES.iter().any(|end| text.ends_with(end)) {
            return Ok(Self::Archive(text.into()));
        }
        let is_path = ["/", "./", "../"]
            .iter()
            .any(|start| text.starts_with(start));
        if is_path || [".", ".."].contains(&text) {
            return Ok(Self::Folder(text.into()));
        }
        match ImageName::new(text) {
            Ok(name) => Ok(Self::Named(name)),
            Err(source) => Err(SourceError::Name {
                text: text.to_owned(),
                source,
            }),
        }
    }
}

impl fmt::Display for ImageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => name.fmt(f),
            Self::Oci(reference) => write!(f, "{REGISTRY}{reference}"),
            Self::Folder(path) | Self::Archive(path) => path.display().fmt(f),
        }
    }
}

/// The last name of a path without what says that it is an archive.
pub(crate) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let end = ARCHIVES
        .iter()
        .filter(|end| name.ends_with(**end))
        .map(|end| end.len())
        .max();
    name[..name.len() - end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_sources_apart() {
        let named = |text| ImageSource::Named(ImageName::new(text).unwrap());
        let oci = |text: &str| ImageSource::Oci(text.into());
        let folder = |text: &str| ImageSource::Folder(text.into());
        let archive = |text: &str| ImageSource::Archive(text.into());
        for (text, source) in [
            ("linux", named("linux")),
            ("oci-alpine-1a2b", named("oci-alpine-1a2b")),
            ("oci:alpine", oci("alpine")),
            ("oci:127.0.0.1:5000/a/b:1", oci("127.0.0.1:5000/a/b:1")),
            ("/srv/root", folder("/srv/root")),
            ("./root", folder("./root")),
            (".", folder(".")),
            ("../root", folder("../root")),
            ("rootfs.tar", archive("rootfs.tar")),
            ("/x/rootfs.tar.zst", archive("/x/rootfs.tar.zst")),
            ("a.tgz", archive("a.tgz")),
        ] {
            assert_eq!(text.parse::<ImageSource>().unwrap(), source, "{text}");
            assert_eq!(source.to_string(), text);
        }
    }

    #[test]
    fn refuses_with_a_way_out() {
        for text in ["", "Linux", "a/b", "root.tar.xz", "alpine:3"] {
            let error = text.parse::<ImageSource>().unwrap_err();
            assert!(matches!(error, SourceError::Name { .. }), "{text}");
            assert!(error.hint().contains("oci:REFERENCE"));
        }
        for text in ["oci:", "oci:UPPER", "oci:a b", "oci:a@sha256:12"] {
            let error = text.parse::<ImageSource>().unwrap_err();
            assert!(matches!(error, SourceError::Reference { .. }), "{text}");
        }
    }

    #[test]
    fn a_stem_is_what_is_left_of_a_name() {
        for (path, left) in [
            ("/a/root.tar.gz", "root"),
            ("x.tar", "x"),
            ("/a/dir", "dir"),
            ("/", ""),
        ] {
            assert_eq!(stem(Path::new(path)), left);
        }
    }
}
