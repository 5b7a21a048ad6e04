//! Where the guestd binary of a Space comes from.
//!
//! A released host binary carries its guestd, so that the two always match. In a source checkout
//! nothing is embedded and the binary is found at run time, so that a change of guestd does not
//! rebuild the host side.

use std::borrow::Cow;
use std::env;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use fs_err as fs;

/// Names the binary, at compile time to embed it, and at run time to use another one.
pub const GUESTD_ENV: &str = "AIRLOCK_GUESTD";

/// The file name looked for next to the running executable.
pub const GUESTD_FILE: &str = "airlock-guestd";

/// The bytes compiled into this program.
static EMBEDDED: Option<&'static [u8]> = include!(concat!(env!("OUT_DIR"), "/guestd_bin.rs"));

/// Why there is no usable guestd binary.
#[derive(Debug, thiserror::Error)]
pub enum GuestdError {
    /// Neither embedded nor named nor next to the executable.
    #[error("no guestd binary: nothing is embedded, {GUESTD_ENV} is not set and {} does not exist", beside.display())]
    Missing {
        /// Where the last attempt looked.
        beside: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read the guestd binary")]
    Read(#[source] std::io::Error),
    /// The file is not a program that a kernel can start as its first process.
    #[error("{} is not a static ELF program: {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl GuestdError {
    /// What a person can do about it.
    pub fn hint(&self) -> &'static str {
        "build with `cargo xtask build`"
    }
}

/// The guestd binary and where it was found.
#[derive(Debug, Clone)]
pub struct GuestdBin {
    /// The program's bytes.
    pub bytes: Cow<'static, [u8]>,
    /// The file, or nothing for the embedded one.
    pub path: Option<PathBuf>,
}

/// Finds the guestd binary: `AIRLOCK_GUESTD`, else embedded, else next to the executable.
pub fn find() -> Result<GuestdBin, GuestdError> {
    if let Some(path) = env::var_os(GUESTD_ENV).filter(|path| !path.is_empty()) {
        return from_file(path.into());
    }
    if let Some(bytes) = EMBEDDED {
        return Ok(GuestdBin {
            bytes: Cow::Borrowed(bytes),
            path: None,
        });
    }
    from_file(beside_executable()?)
}

/// Reads and checks the binary at `path`.
pub fn from_file(path: PathBuf) -> Result<GuestdBin, GuestdError> {
    let mut bytes = Vec::new();
    fs::File::open(&path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(GuestdError::Read)?;
    if let Some(problem) = why_unusable(&bytes) {
        return Err(GuestdError::Unusable { path, problem });
    }
    Ok(GuestdBin {
        bytes: Cow::Owned(bytes),
        path: Some(path),
    })
}

fn beside_executable() -> Result<PathBuf, GuestdError> {
    let executable = env::current_exe().map_err(GuestdError::Read)?;
    let beside = executable
        .parent()
        .unwrap_or(Path::new("/"))
        .join(GUESTD_FILE);
    if beside.is_file() {
        Ok(beside)
    } else {
        Err(GuestdError::Missing { beside })
    }
}

/// A dynamic or foreign binary would only show as a kernel panic inside the Space, so it is
/// refused here, where the message can say why.
fn why_unusable(bytes: &[u8]) -> Option<&'static str> {
    const PT_INTERP: u32 = 3;
    let u16_at = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    if bytes.get(..6) != Some(b"\x7fELF\x02\x01") {
        return Some("it is no 64-bit little-endian ELF file");
    }
    let machine: u16 = if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    };
    if u16_at(18) != Some(machine) {
        return Some("it is for another processor");
    }
    let (Some(table), Some(entry_bytes), Some(entries)) = (u64_at(32), u16_at(54), u16_at(56))
    else {
        return Some("its header is cut short");
    };
    for index in 0..u64::from(entries) {
        let offset = index
            .checked_mul(u64::from(entry_bytes))
            .and_then(|relative| table.checked_add(relative))
            .and_then(|offset| usize::try_from(offset).ok())
            .filter(|offset| *offset < bytes.len());
        let Some(kind) = offset.and_then(u32_at) else {
            return Some("its header is cut short");
        };
        if kind == PT_INTERP {
            return Some("it is linked dynamically");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_cannot_be_the_first_process() {
        assert!(why_unusable(b"#!/bin/sh\n").is_some());
        assert!(why_unusable(b"\x7fELF\x02\x01").is_some());
        let own = std::fs::read(env::current_exe().unwrap()).unwrap();
        assert_eq!(why_unusable(&own), Some("it is linked dynamically"));
        let mut foreign = own.clone();
        foreign[18] = 0xff;
        assert_eq!(why_unusable(&foreign), Some("it is for another processor"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = from_file("/nonexistent/guestd".into()).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("/nonexistent/guestd"), "{source}");
        assert!(error.hint().contains("cargo xtask build"));
    }
}
