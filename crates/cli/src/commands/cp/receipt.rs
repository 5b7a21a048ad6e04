//! What `cp` says in the end.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use airlock::{Receipt, Route, SpaceName};
use serde::Serialize;

/// What the CLI itself knows of a transfer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer<'a> {
    pub(super) direction: Direction,
    pub(super) space: &'a SpaceName,
    /// The local path, or `-`.
    pub(super) local_name: &'a OsStr,
}

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Direction {
    /// Into the Space.
    Upload,
    /// Out of it.
    Download,
}

/// What `--json` prints. Stable.
#[derive(Debug, Serialize)]
pub(super) struct Json<'a> {
    direction: Direction,
    space: &'a SpaceName,
    /// Where the file is now; absent for standard output. U+FFFD stands for what is no UTF-8.
    path: Option<String>,
    bytes: u64,
    route: Route,
    route_reason: Option<&'a str>,
    root_sha256: String,
    sha256: Option<String>,
    retries: u64,
    replaced: bool,
    ms: f64,
    mib_s: f64,
}

impl<'a> Json<'a> {
    pub(super) fn new(transfer: &Transfer<'a>, receipt: &'a Receipt) -> Self {
        Self {
            direction: transfer.direction,
            space: transfer.space,
            path: (!receipt.path.is_empty())
                .then(|| String::from_utf8_lossy(&receipt.path).into_owned()),
            bytes: receipt.bytes,
            route: receipt.route,
            route_reason: receipt.route_reason.as_deref(),
            root_sha256: receipt.root.to_string(),
            sha256: receipt.sha256.as_ref().map(ToString::to_string),
            retries: receipt.leaf_retries,
            replaced: receipt.replaced,
            ms: receipt.elapsed.as_secs_f64() * 1000.0,
            mib_s: mib_s(receipt.bytes, receipt.elapsed),
        }
    }
}

/// MiB/s; 0 for nothing in no time.
pub(super) fn mib_s(bytes: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 {
        bytes as f64 / (1024.0 * 1024.0) / seconds
    } else {
        0.0
    }
}

/// A line that `sha256sum --check` reads: names with a line break or a backslash are escaped and
/// the line begins with a backslash, as that program does it.
pub(super) fn sha256sum_line(digest: &str, name: &OsStr) -> Vec<u8> {
    let mut escaped = Vec::new();
    for &byte in name.as_bytes() {
        match byte {
            b'\\' => escaped.extend(b"\\\\"),
            b'\n' => escaped.extend(b"\\n"),
            b'\r' => escaped.extend(b"\\r"),
            other => escaped.push(other),
        }
    }
    let mark: &[u8] = if escaped == name.as_bytes() {
        b""
    } else {
        b"\\"
    };
    [mark, digest.as_bytes(), b"  ", &escaped, b"\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_sha256sum() {
        for (name, line) in [
            ("a b", &b"00  a b\n"[..]),
            ("-", b"00  -\n"),
            ("a\nb", b"\\00  a\\nb\n"),
            ("a\\b", b"\\00  a\\\\b\n"),
        ] {
            assert_eq!(sha256sum_line("00", OsStr::new(name)), line);
        }
        let raw = OsStr::from_bytes(b"\xff");
        assert_eq!(sha256sum_line("00", raw), b"00  \xff\n");
    }

    #[test]
    fn a_rate_needs_time() {
        assert!((mib_s(2 * 1024 * 1024, Duration::from_millis(500)) - 4.0).abs() < 1e-9);
        assert!(mib_s(1, Duration::ZERO).abs() < 1e-9);
    }
}
