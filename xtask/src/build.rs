//! `cargo xtask build`: guestd as a static program, then airlock with guestd inside.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::run::{cargo, output, run};

/// What a build made.
pub(crate) struct Built {
    /// The host's program.
    pub(crate) airlock: PathBuf,
    /// The daemon for Spaces.
    pub(crate) guestd: PathBuf,
}

/// Builds both programs for use: optimised, with the build id of the source tree.
pub(crate) fn airlock(root: &Path) -> Result<Built> {
    let id = build_id(root);
    let guestd = guestd(root, &id)?;
    run(cargo(root)
        .args(["build", "--release", "--quiet", "--package", "airlock-cli"])
        .env("AIRLOCK_GUESTD", &guestd)
        .env("AIRLOCK_BUILD_ID", &id))?;
    Ok(Built {
        airlock: target_dir(root)?.join("release/airlock"),
        guestd,
    })
}

/// Builds guestd. Static, so that it runs in any Space whatever its libraries are; static glibc
/// needs the target to be named, because procedural macros cannot be static.
fn guestd(root: &Path, id: &str) -> Result<PathBuf> {
    let target = match std::env::consts::ARCH {
        "x86_64" => "x86_64-unknown-linux-gnu",
        "aarch64" => "aarch64-unknown-linux-gnu",
        other => bail!("Spaces do not run on {other} yet"),
    };
    run(cargo(root)
        .args([
            "build",
            "--profile",
            "guestd",
            "--quiet",
            "--package",
            "airlock-guestd",
        ])
        .args(["--target", target])
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env("AIRLOCK_BUILD_ID", id))?;
    Ok(target_dir(root)?.join(target).join("guestd/airlock-guestd"))
}

/// Version and commit, `0.1.0+g1a2b3c4`, with `.dirty` where the tree differs from the commit.
fn build_id(root: &Path) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let git = |args: &[&str]| {
        output(Command::new("git").current_dir(root).args(args)).map(|text| text.trim().to_owned())
    };
    let Ok(commit) = git(&["rev-parse", "--short=10", "HEAD"]) else {
        return version.to_owned();
    };
    let clean = git(&["status", "--porcelain"]).is_ok_and(|changes| changes.is_empty());
    let dirty = if clean { "" } else { ".dirty" };
    format!("{version}+g{commit}{dirty}")
}

/// Where cargo builds.
pub(crate) fn target_dir(root: &Path) -> Result<PathBuf> {
    let text = output(cargo(root).args(["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&text)?;
    match metadata["target_directory"].as_str() {
        Some(folder) => Ok(PathBuf::from(folder)),
        None => bail!("cargo metadata names no target directory"),
    }
}
