//! Paths inside a tree.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::tree::TreeError;

/// The longest path that the kernel takes.
const MAX_PATH_BYTES: usize = 4095;

/// Every folder on the way is held open while a file is written.
const MAX_DEPTH: usize = 255;

/// A path below the root of a tree: relative, without `.` and `..`; empty for the root itself.
///
/// Only this type is taken by [`crate::tree::writer::TreeWriter`], so what an image says is
/// checked before anything is done with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct TreePath(PathBuf);

impl TreePath {
    /// Reads a path as an archive spells it; a leading `/` means the root of the tree.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, TreeError> {
        let bad = |problem| TreeError::BadPath {
            path: String::from_utf8_lossy(&text[..text.len().min(200)]).into_owned(),
            problem,
        };
        if text.len() > MAX_PATH_BYTES {
            return Err(bad("is too long"));
        }
        if text.contains(&0) {
            return Err(bad("has a NUL byte"));
        }
        let mut path = PathBuf::new();
        let mut depth = 0;
        for part in text.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return Err(bad("leads upwards")),
                part => {
                    path.push(OsStr::from_bytes(part));
                    depth += 1;
                }
            }
        }
        if depth > MAX_DEPTH {
            return Err(bad("has too many folders"));
        }
        Ok(Self(path))
    }

    /// The entry `name` of this folder; a name has no `/` and is not `.` or `..`.
    pub(crate) fn child(&self, name: &[u8]) -> Result<Self, TreeError> {
        if name.is_empty() || name == b"." || name.contains(&b'/') {
            return Err(TreeError::BadPath {
                path: self.0.join(OsStr::from_bytes(name)).display().to_string(),
                problem: "is no name of a file",
            });
        }
        let mut text = self.0.as_os_str().as_bytes().to_vec();
        text.push(b'/');
        text.extend_from_slice(name);
        Self::parse(&text)
    }

    /// The folder and the name in it; `None` for the root.
    pub(crate) fn split(&self) -> Option<(Self, OsString)> {
        let name = self.0.file_name()?.to_owned();
        Some((Self(self.0.parent()?.to_owned()), name))
    }

    /// Whether it is the root of the tree.
    pub(crate) fn is_root(&self) -> bool {
        self.0.as_os_str().is_empty()
    }

    /// The names on the way, from the root.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &OsStr> {
        self.0.iter()
    }

    /// Whether `other` is this path or below it.
    pub(crate) fn holds(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0.display())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn takes_what_archives_write() {
        for (text, path) in [
            ("a/b", "a/b"),
            ("./a", "a"),
            ("/a//b/", "a/b"),
            ("./", ""),
            ("", ""),
            ("...", "..."),
        ] {
            let parsed = TreePath::parse(text.as_bytes()).unwrap();
            assert_eq!(parsed.0, PathBuf::from(path), "{text}");
        }
        let folder = TreePath::parse(b"a").unwrap();
        assert_eq!(folder.child(b"b").unwrap().to_string(), "/a/b");
    }

    #[test]
    fn refuses_what_could_leave_the_tree() {
        let long = "x".repeat(4096);
        let deep = "a/".repeat(256);
        for text in ["..", "../x", "a/../../x", "/../x", "a\0b", &long, &deep] {
            assert!(TreePath::parse(text.as_bytes()).is_err(), "{text}");
        }
        let folder = TreePath::parse(b"a").unwrap();
        for name in [&b""[..], b".", b"..", b"b/c", b"/", b"b\0"] {
            assert!(folder.child(name).is_err(), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_taken_stays_below(text in "[./a-c\\x00]{0,40}") {
            if let Ok(path) = TreePath::parse(text.as_bytes()) {
                let normal = path
                    .0
                    .components()
                    .all(|part| matches!(part, std::path::Component::Normal(_)));
                prop_assert!(normal);
                prop_assert_eq!(TreePath::parse(path.to_string().as_bytes()).unwrap(), path);
            } else {
                prop_assert!(text.contains("..") || text.contains('\0'));
            }
        }
    }
}
