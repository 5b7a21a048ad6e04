//! What a container gets of the host, as descriptors.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{MemfdFlags, SealFlags};

use crate::protocol::short_path;

/// A program in memory that nobody can change, the Space's root included: a file of the host
/// could be reached, and perhaps written, through `/proc/self/exe`.
pub(super) fn in_memory(program: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("airlock-guestd", flags)?;
    let mut file = File::from(fd);
    file.write_all(program)?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

/// Listens at `path`, private to the user, replacing what a dead keeper left there.
pub(super) fn listen(path: &Path) -> io::Result<OwnedFd> {
    match fs_err::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let (_folder, short) = short_path(path)?;
    let listener = UnixListener::bind(short)?;
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_memory_cannot_be_changed() {
        let fd = in_memory(b"program").unwrap();
        assert!(rustix::io::pwrite(&fd, b"x", 0).is_err());
        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
    }

    #[test]
    fn the_socket_is_private_and_may_be_there_already() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guestd.sock");
        let first = listen(&path).unwrap();
        drop(first);
        let _second = listen(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::os::unix::net::UnixStream::connect(&path).unwrap();
    }
}
