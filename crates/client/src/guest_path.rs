//! Paths inside a Space.

use std::fmt;

/// A path inside a Space: bytes, as Linux has them, of no encoding.
///
/// Relative paths start at the home folder of the Space's user. Its text form escapes what is not
/// printable, so that nothing in a name can act on a terminal, and no two names look the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestPath(Vec<u8>);

impl GuestPath {
    /// Wraps the bytes of a path.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The last component, where that is a name: what a copy of the file is called.
    #[must_use]
    pub fn file_name(&self) -> Option<&[u8]> {
        let name = self.0.rsplit(|byte| *byte == b'/').next()?;
        (!matches!(name, b"" | b"." | b".." | b"~")).then_some(name)
    }
}

impl From<&str> for GuestPath {
    fn from(path: &str) -> Self {
        Self(path.into())
    }
}

impl fmt::Display for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(&self.0, f)
    }
}

impl fmt::Debug for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuestPath({self})")
    }
}

/// Writes `bytes` so that nothing is lost and nothing acts on a terminal.
pub(crate) fn escape(bytes: &[u8], f: &mut impl fmt::Write) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => f.write_str("\\\\")?,
                c if c.is_control() => {
                    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                        write!(f, "\\x{byte:02x}")?;
                    }
                }
                c => f.write_char(c)?,
            }
        }
        for byte in chunk.invalid() {
            write!(f, "\\x{byte:02x}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_lossless_and_harmless() {
        let shown = |bytes: &[u8]| GuestPath::new(bytes).to_string();
        assert_eq!(shown("/a b/ü'\"$(id)".as_bytes()), "/a b/ü'\"$(id)");
        assert_eq!(shown(b"\xe4\n\x1b[31m"), "\\xe4\\x0a\\x1b[31m");
        assert_eq!(shown(b"\\xe4"), "\\\\xe4");
    }

    #[test]
    fn the_file_name_is_one_component() {
        let name = |path: &str| GuestPath::from(path).file_name().map(<[u8]>::to_vec);
        assert_eq!(name("/a/b"), Some(b"b".to_vec()));
        assert_eq!(name("b"), Some(b"b".to_vec()));
        for none in ["", "/", "a/", "..", "/a/..", "."] {
            assert_eq!(name(none), None, "{none}");
        }
    }
}
