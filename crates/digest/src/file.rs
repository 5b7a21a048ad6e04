//! The ordinary whole-file SHA-256.

use sha2::Digest as _;

use crate::digest::Digest;

/// Streaming SHA-256 of a whole file, the digest that `sha256sum` prints.
///
/// One stream cannot be spread over vector lanes, so this is slower than hashing leaves; it runs
/// on the host, where SHA instructions exist, and only when it is asked for.
#[derive(Debug, Clone, Default)]
pub struct FileHasher(sha2::Sha256);

impl FileHasher {
    /// Starts with an empty file.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the next bytes of the file.
    pub fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    /// The digest of everything appended.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest::from_bytes(self.0.finalize().into())
    }
}
