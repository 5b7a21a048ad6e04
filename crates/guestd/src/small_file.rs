//! Reading the small files that every system has, in a Space that may have made anything of them:
//! a pipe that nobody writes to, a device without an end, a folder.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

/// More than any such file has: 16,000 users take 1 MiB.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Reads the regular file at `path`, or at the end of the links there; never waits.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    // A device can act on being opened, so the type is looked at first.
    let path = path.as_ref();
    let is_regular = |mode| FileType::from_raw_mode(mode) == FileType::RegularFile;
    if !is_regular(rustix::fs::stat(path)?.st_mode) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !is_regular(rustix::fs::fstat(&file)?.st_mode) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// The same as text; what is no UTF-8 is replaced, and a file that cannot be read is empty.
pub(crate) fn text(path: impl AsRef<Path>) -> String {
    String::from_utf8_lossy(&read(path).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_no_file_is_refused_and_nothing_waits() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "a:b\n").unwrap();
        symlink("file", path("link")).unwrap();
        assert_eq!(text(path("link")), "a:b\n");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), FileType::Fifo, mode, 0).unwrap();
        symlink("/dev/zero", path("endless")).unwrap();
        for name in ["pipe", "endless", "missing", "."] {
            assert!(read(path(name)).is_err(), "{name}");
            assert_eq!(text(path(name)), "");
        }
        File::create(path("huge"))
            .unwrap()
            .set_len(MAX_BYTES + 1)
            .unwrap();
        assert!(read(path("huge")).is_err());
    }
}
