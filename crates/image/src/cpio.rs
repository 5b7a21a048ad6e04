//! Writes the `newc` archive that the kernel unpacks as its first file system.
//!
//! An archive states owners, modes and device numbers as plain fields, so no root rights are
//! needed to make one. Everything belongs to root, and times are zero: the same input gives the
//! same bytes.

use std::collections::BTreeSet;
use std::io::{self, Write};

use cpio::newc::{Builder, ModeFileType, trailer};

/// The kernel aligns files to 4 bytes; a whole archive is padded to this, as `cpio` does.
const BLOCK_BYTES: u64 = 512;

/// An archive under construction.
///
/// Parent folders are added by themselves, once, before what they hold.
pub(crate) struct Archive<W: Write> {
    out: Counted<W>,
    next_ino: u32,
    folders: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    /// An empty archive written to `out`.
    pub(crate) fn new(out: W) -> Self {
        Self {
            out: Counted {
                inner: out,
                bytes: 0,
            },
            next_ino: 1,
            folders: BTreeSet::new(),
        }
    }

    /// Adds a folder and its parents; a folder that is there already keeps its mode.
    pub(crate) fn folder(&mut self, path: &str, mode: u32) -> io::Result<()> {
        if path.is_empty() || self.folders.contains(path) {
            return Ok(());
        }
        self.parents(path)?;
        self.folders.insert(path.to_owned());
        self.entry(path, ModeFileType::Directory, mode, 2, (0, 0), &[])
    }

    /// Adds a regular file.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.parents(path)?;
        self.entry(path, ModeFileType::Regular, mode, 1, (0, 0), content)
    }

    /// Adds a symbolic link to `target`.
    pub(crate) fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.parents(path)?;
        self.entry(
            path,
            ModeFileType::Symlink,
            0o777,
            1,
            (0, 0),
            target.as_bytes(),
        )
    }

    /// Adds a character device.
    pub(crate) fn char_device(
        &mut self,
        path: &str,
        mode: u32,
        device: (u32, u32),
    ) -> io::Result<()> {
        self.parents(path)?;
        self.entry(path, ModeFileType::Char, mode, 1, device, &[])
    }

    /// Writes the end mark and gives back the writer.
    pub(crate) fn finish(self) -> io::Result<W> {
        let mut out = trailer(self.out)?;
        let over = out.bytes % BLOCK_BYTES;
        if over != 0 {
            out.write_all(&vec![0; (BLOCK_BYTES - over) as usize])?;
        }
        out.flush()?;
        Ok(out.inner)
    }

    fn parents(&mut self, path: &str) -> io::Result<()> {
        match path.rsplit_once('/') {
            Some((parent, _)) => self.folder(parent, 0o755),
            None => Ok(()),
        }
    }

    fn entry(
        &mut self,
        path: &str,
        kind: ModeFileType,
        mode: u32,
        links: u32,
        device: (u32, u32),
        content: &[u8],
    ) -> io::Result<()> {
        let bytes = u32::try_from(content.len())
            .map_err(|_| io::Error::new(io::ErrorKind::FileTooLarge, path.to_owned()))?;
        let mut entry = Builder::new(path)
            .ino(self.next_ino)
            .mode(mode)
            .set_mode_file_type(kind)
            .nlink(links)
            .rdev_major(device.0)
            .rdev_minor(device.1)
            .write(&mut self.out, bytes);
        entry.write_all(content)?;
        entry.finish()?;
        self.next_ino += 1;
        Ok(())
    }
}

struct Counted<W> {
    inner: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buf)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn sample() -> Vec<u8> {
        let mut archive = Archive::new(Vec::new());
        archive.file("init", 0o755, b"#!/bin/sh\n").unwrap();
        archive.char_device("dev/console", 0o600, (5, 1)).unwrap();
        archive.folder("tmp", 0o1777).unwrap();
        archive.file("lib/modules/load-order", 0o644, b"").unwrap();
        archive.file("lib/modules/a.ko", 0o644, b"abc").unwrap();
        archive.link("bin/sh", "busybox").unwrap();
        archive.finish().unwrap()
    }

    /// The listing of a second implementation, `cpio` or the one in busybox.
    fn listing(archive: &[u8], flag: &str) -> String {
        let program: &[&str] = if std::path::Path::new("/usr/bin/cpio").exists() {
            &["cpio"]
        } else {
            &["busybox", "cpio"]
        };
        let mut child = Command::new(program[0])
            .args(&program[1..])
            .arg(flag)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cpio or busybox is installed");
        child.stdin.take().unwrap().write_all(archive).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn the_real_cpio_reads_it() {
        let names = listing(&sample(), "-t");
        let names: Vec<&str> = names.lines().collect();
        assert_eq!(
            names,
            [
                "init",
                "dev",
                "dev/console",
                "tmp",
                "lib",
                "lib/modules",
                "lib/modules/load-order",
                "lib/modules/a.ko",
                "bin",
                "bin/sh"
            ]
        );
        let long = listing(&sample(), "-tv");
        let line = |end: &str| {
            long.lines()
                .find(|line| line.ends_with(end))
                .unwrap_or_default()
        };
        assert!(line("tmp").starts_with("drwxrwxrwt"), "{long}");
        assert!(line("init").starts_with("-rwxr-xr-x"), "{long}");
        assert!(
            line("bin/sh -> busybox").starts_with("lrwxrwxrwx"),
            "{long}"
        );
        assert!(line("dev/console").starts_with("crw-------"), "{long}");
    }

    #[test]
    fn devices_have_their_numbers() {
        let sample = sample();
        // Header fields are 8 hexadecimal digits after a magic number of 6; the device's numbers
        // are the tenth and the eleventh, and the name follows the thirteenth.
        let name = b"dev/console\0";
        let at = sample
            .windows(name.len())
            .position(|window| window == name)
            .unwrap();
        let header = std::str::from_utf8(&sample[at - 110..at]).unwrap();
        assert_eq!(&header[6 + 9 * 8..6 + 11 * 8], "0000000500000001");
    }

    #[test]
    fn the_same_input_gives_the_same_whole_blocks() {
        assert_eq!(sample(), sample());
        assert_eq!(sample().len() % 512, 0);
    }
}
