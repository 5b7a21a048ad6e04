//! What a finished image consists of: `images/<name>/manifest.json`.
//!
//! The manifest is renamed into place after all files that it names are synced; a folder without
//! one is no image. All names are relative, so the folder can be copied to another host.

use std::io;
use std::io::Write as _;
use std::path::Path;

use airlock_digest::{Digest, FileHasher};
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::host::Arch;
use crate::workdir::sync_folder;

/// Raised when older programs cannot read the manifest any more.
pub(crate) const FORMAT: u32 = 1;

pub(crate) const FILE_NAME: &str = "manifest.json";

/// The description of one image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format: u32,
    pub(crate) arch: Arch,
    pub(crate) created_unix: u64,
    pub(crate) kernel: Piece,
    /// Version of the kernel's package.
    pub(crate) kernel_version: String,
    pub(crate) kernel_recipe: u32,
    pub(crate) initramfs: Piece,
    pub(crate) initramfs_recipe: u32,
    /// SHA-256 of the guestd in the initramfs, in hexadecimal.
    pub(crate) guestd_sha256: String,
    pub(crate) root: Option<RootPiece>,
}

/// One file of the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    /// Its name in the image's folder.
    pub(crate) file: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// The root file system of the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RootPiece {
    #[serde(flatten)]
    pub(crate) piece: Piece,
    pub(crate) recipe: u32,
    /// The release it is made of.
    pub(crate) suite: String,
}

impl Manifest {
    /// Reads the manifest of the image in `dir`; `None` if it has none or one of another format.
    pub(crate) fn read(dir: &Path) -> io::Result<Option<Self>> {
        match fs::read(dir.join(FILE_NAME)) {
            Ok(text) => Ok(serde_json::from_slice::<Self>(&text)
                .ok()
                .filter(|manifest| manifest.format == FORMAT)),
            Err(error)
                if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory]
                    .contains(&error.kind()) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the manifest, whole or not at all.
    pub(crate) fn publish(&self, dir: &Path) -> io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(".manifest-")
            .tempfile_in(dir)?;
        serde_json::to_writer_pretty(&mut file, self)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        sync_folder(dir)?;
        file.persist(dir.join(FILE_NAME))?;
        sync_folder(dir)
    }

    /// The image's files.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        let root = self.root.as_ref().map(|root| &root.piece);
        [Some(&self.kernel), Some(&self.initramfs), root]
            .into_iter()
            .flatten()
    }

    /// The first file whose size is not what it should be, with the size found.
    pub(crate) fn first_damaged(&self, dir: &Path) -> Option<(&Piece, u64)> {
        self.pieces().find_map(|piece| {
            let found = fs::metadata(dir.join(&piece.file)).map_or(0, |meta| meta.len());
            (found != piece.bytes).then_some((piece, found))
        })
    }

    /// One digest for the whole image: SHA-256 over its files' digests, in order.
    pub(crate) fn digest(&self) -> String {
        let mut hasher = FileHasher::new();
        for piece in self.pieces() {
            hasher.update(piece.sha256.as_bytes());
            hasher.update(b"\n");
        }
        hasher.finish().to_string()
    }
}

/// SHA-256 of some bytes, in hexadecimal.
pub(crate) fn sha256_of(bytes: &[u8]) -> String {
    let mut hasher = FileHasher::new();
    hasher.update(bytes);
    hasher.finish().to_string()
}

/// SHA-256 of a file; `on_chunk` may stop it and is told how many bytes are done.
pub(crate) fn sha256_of_file<E: From<io::Error>>(
    path: &Path,
    on_chunk: &mut dyn FnMut(u64) -> Result<(), E>,
) -> Result<Digest, E> {
    use std::io::Read as _;
    let mut file = fs::File::open(path)?;
    let mut hasher = FileHasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut done = 0;
    loop {
        let bytes = file.read(&mut buffer)?;
        if bytes == 0 {
            return Ok(hasher.finish());
        }
        hasher.update(&buffer[..bytes]);
        done += bytes as u64;
        on_chunk(done)?;
    }
}
