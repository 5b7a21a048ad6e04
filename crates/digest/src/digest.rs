//! The value of a SHA-256.

use std::fmt;
use std::hint::black_box;
use std::str::FromStr;

/// A SHA-256 digest, of a leaf, of a whole file or of a root.
///
/// Text form is 64 lower-case hexadecimal digits, as `sha256sum` prints it. Comparing takes the
/// same time whatever the bytes are, so that a digest may also stand for a secret.
#[derive(Clone, Copy, Eq, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Bytes in a digest.
    pub const BYTES: usize = 32;

    /// Wraps the 32 bytes of a digest.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of the digest.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Builds the digest from the final hash value: its eight words, big-endian (6.2.2).
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn from_words(words: &[u32; 8]) -> Self {
        let mut bytes = [0; 32];
        for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        Self(bytes)
    }

    /// Compares without telling by its duration where two digests differ.
    #[must_use]
    pub fn ct_eq(&self, other: &Self) -> bool {
        let difference = self
            .0
            .iter()
            .zip(&other.0)
            .fold(0, |bits, (a, b)| bits | black_box(a ^ b));
        black_box(difference) == 0
    }
}

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        self.ct_eq(other)
    }
}

impl std::hash::Hash for Digest {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl From<Digest> for [u8; 32] {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl AsRef<[u8]> for Digest {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<&[u8]> for Digest {
    type Error = ParseDigestError;

    fn try_from(bytes: &[u8]) -> Result<Self, Self::Error> {
        let bytes = bytes
            .try_into()
            .map_err(|_| ParseDigestError::Bytes { got: bytes.len() })?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.as_bytes();
        if text.len() != 2 * Self::BYTES {
            return Err(ParseDigestError::Length { got: text.len() });
        }
        let mut bytes = [0; Self::BYTES];
        for (index, pair) in text.as_chunks::<2>().0.iter().enumerate() {
            let high = nibble(pair[0]).ok_or(ParseDigestError::Digit { offset: 2 * index })?;
            let low = nibble(pair[1]).ok_or(ParseDigestError::Digit {
                offset: 2 * index + 1,
            })?;
            bytes[index] = high << 4 | low;
        }
        Ok(Self(bytes))
    }
}

/// The value of one lower-case hexadecimal digit; upper case is refused, so that a digest has one text form.
fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// Why something is no digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseDigestError {
    /// The text has not 64 digits.
    #[error("a SHA-256 has 64 hexadecimal digits, not {got} bytes of text")]
    Length {
        /// Bytes of text given.
        got: usize,
    },
    /// A character is no lower-case hexadecimal digit.
    #[error("the character at offset {offset} is not one of 0-9 and a-f")]
    Digit {
        /// Offset of the first such character.
        offset: usize,
    },
    /// The binary form has not 32 bytes.
    #[error("a SHA-256 has 32 bytes, not {got}")]
    Bytes {
        /// Bytes given.
        got: usize,
    },
}
