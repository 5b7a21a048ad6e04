//! Paths as they arrive on the wire.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use airlock_wire::{Fault, FaultKind};

/// The longest path the kernel takes, in bytes, its final NUL included.
const PATH_MAX: usize = 4096;

/// Why a path on the wire names nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// No bytes at all.
    #[error("the path is empty")]
    Empty,
    /// A NUL, which no path can hold.
    #[error("the path {0} contains a NUL byte")]
    Nul(String),
    /// Longer than the kernel takes.
    #[error("the path has {0} bytes, at most {max} are possible", max = PATH_MAX - 1)]
    TooLong(usize),
}

impl From<PathError> for Fault {
    fn from(error: PathError) -> Self {
        let kind = match error {
            PathError::Empty | PathError::Nul(_) => FaultKind::InvalidArgument,
            PathError::TooLong(_) => FaultKind::LimitExceeded,
        };
        Self::new(kind, error.to_string())
    }
}

/// Makes a path on the wire absolute.
///
/// Relative paths and those that start with `~` alone begin in `home`, the default user's home
/// folder. Nothing else is interpreted: `..` and links mean what they mean to the kernel, and a
/// slash at the end stays, because it says that a folder is meant.
pub fn resolve(wire: &[u8], home: &Path) -> Result<PathBuf, PathError> {
    if wire.is_empty() {
        return Err(PathError::Empty);
    }
    if wire.contains(&0) {
        return Err(PathError::Nul(escape(wire)));
    }
    let rest = match wire {
        b"~" => b"",
        wire => wire.strip_prefix(b"~/").unwrap_or(wire),
    };
    let mut path = Vec::new();
    if !rest.starts_with(b"/") {
        path.extend_from_slice(home.as_os_str().as_bytes());
        if !path.ends_with(b"/") && !rest.is_empty() {
            path.push(b'/');
        }
    }
    path.extend_from_slice(rest);
    if path.len() >= PATH_MAX {
        return Err(PathError::TooLong(path.len()));
    }
    Ok(PathBuf::from(OsStr::from_bytes(&path)))
}

/// A name as text: itself where it is UTF-8, else with `\xNN` for each byte that is not.
///
/// The contract's own messages carry names as text; a name that is none can be seen this way,
/// but only calls that carry bytes can use it.
pub fn escape(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02X}");
        }
    }
    text
}

/// The same for a path.
pub fn escape_path(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_start_at_home() {
        let cases: [(&[u8], &str); 10] = [
            (b"/a/b", "/a/b"),
            (b"a", "/home/u/a"),
            (b"./a", "/home/u/./a"),
            (b"~", "/home/u"),
            (b"~/", "/home/u"),
            (b"~/a b", "/home/u/a b"),
            (b"~x", "/home/u/~x"),
            (b".", "/home/u/."),
            (b"/d/", "/d/"),
            (b"-rf $(id)\n'\"", "/home/u/-rf $(id)\n'\""),
        ];
        for (wire, path) in cases {
            let resolved = resolve(wire, Path::new("/home/u")).unwrap();
            assert_eq!(resolved.as_os_str(), path, "{wire:?}");
        }
        assert_eq!(resolve(b"a", Path::new("/")).unwrap(), Path::new("/a"));
        assert_eq!(resolve(b"~", Path::new("/")).unwrap(), Path::new("/"));
    }

    #[test]
    fn bytes_survive() {
        let resolved = resolve(b"/\xe4", Path::new("/")).unwrap();
        assert_eq!(resolved.as_os_str().as_bytes(), b"/\xe4");
        assert_eq!(escape_path(&resolved), "/\\xE4");
        assert_eq!(escape("ä\n".as_bytes()), "ä\n");
    }

    #[test]
    fn what_no_path_can_be_is_refused() {
        let home = Path::new("/root");
        assert_eq!(resolve(b"", home), Err(PathError::Empty));
        assert!(matches!(resolve(b"/a\0b", home), Err(PathError::Nul(_))));
        let long = vec![b'a'; PATH_MAX];
        assert!(matches!(resolve(&long, home), Err(PathError::TooLong(_))));
    }
}
