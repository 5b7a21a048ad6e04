//! `airlock cp`.

use std::ffi::OsString;

use clap::Args;

/// What to copy, and how.
#[derive(Debug, Args)]
#[command(after_help = "\
One side is NAME:/path in a Space (NAME:path starts at the home folder of its user), the other is \
a local file or - for standard input or output. ./a:b is always a local file. A destination that \
is a folder takes the file under its own name; one that ends in / must be a folder.

Every byte is verified by SHA-256, and the file appears under its name only when all of it is \
there; a file that was there before stays until then.

--json prints one object with direction, space, path (where the file is now), bytes, route (inline, lane or \
network), route_reason, root_sha256 (over the digests of the leaves), sha256 (with --sha256), \
retries, replaced, ms and mib_s.")]
pub(crate) struct CopyArgs {
    /// Local file, NAME:PATH in a Space, or - for standard input
    #[arg(value_name = "SRC")]
    pub(crate) source: OsString,
    /// Local file or folder, NAME:PATH in a Space, or - for standard output
    #[arg(value_name = "DST")]
    pub(crate) target: OsString,
    /// Succeed only when the file would survive a crash of the machine it went to
    #[arg(long)]
    pub(crate) fsync: bool,
    /// Print the SHA-256 of the whole file, as sha256sum does
    #[arg(long)]
    pub(crate) sha256: bool,
    /// Print a receipt
    #[arg(long)]
    pub(crate) json: bool,
}
