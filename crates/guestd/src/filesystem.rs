//! `cua.env.v1.FilesystemService`.

/// The largest piece of a file in one message, in bytes.
pub const MAX_CHUNK_BYTES: usize = 4 * 1024 * 1024;
