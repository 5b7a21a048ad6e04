//! Images from an archive of a root file system, such as `docker export` writes.

use std::io::{self, Read as _, Write as _};
use std::path::Path;

use airlock_digest::FileHasher;
use fs_err as fs;
use tokio_util::sync::CancellationToken;

use crate::import::{ImportError, LayerPiece};
use crate::tree::layer::Layer;

/// Copies the archive to `copy`, hashing what is copied.
///
/// A copy, because the archive's owner may write to it.
pub(crate) fn take(
    archive: &Path,
    copy: &Path,
    on_fraction: &dyn Fn(f32),
    cancel: &CancellationToken,
) -> Result<LayerPiece, ImportError> {
    let unread = |source| ImportError::Read {
        path: archive.to_owned(),
        source,
    };
    // Not `fs_err`, whose message would name the path twice.
    let mut input = std::fs::File::open(archive).map_err(unread)?;
    let meta = input.metadata().map_err(unread)?;
    if !meta.is_file() {
        return Err(unread(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file",
        )));
    }
    let mut output = fs::File::create(copy)?;
    let mut hasher = FileHasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut done = 0;
    loop {
        if cancel.is_cancelled() {
            return Err(ImportError::Cancelled);
        }
        let bytes = input.read(&mut buffer).map_err(unread)?;
        if bytes == 0 {
            break;
        }
        hasher.update(&buffer[..bytes]);
        output.write_all(&buffer[..bytes])?;
        done += bytes as u64;
        on_fraction(done as f32 / meta.len().max(1) as f32);
    }
    Layer::check(copy).map_err(|source| ImportError::NotAnArchive {
        path: archive.to_owned(),
        source,
    })?;
    Ok(LayerPiece::new(hasher.finish().to_string(), done, None))
}
