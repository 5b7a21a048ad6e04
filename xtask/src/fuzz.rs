//! `cargo xtask fuzz`: each fuzz target for a while.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::run::{cargo, run, say};

/// The targets in `fuzz/fuzz_targets`.
const TARGETS: &[&str] = &["fault", "wall", "part", "boot"];

/// Runs every target for `seconds`; fails at the first input that breaks one.
pub(crate) fn run_all(root: &Path, seconds: u32) -> Result<()> {
    let installed = Command::new("cargo-fuzz").arg("--version").output();
    if !installed.is_ok_and(|output| output.status.success()) {
        bail!(
            "cargo-fuzz is not installed\nhint: cargo install cargo-fuzz; the same parsers have \
             property tests in `cargo xtask test`"
        );
    }
    for target in TARGETS {
        say(&format!("fuzzing {target} for {seconds} s"));
        run(cargo(root)
            // The sanitizer's flags are unstable, the code is not.
            .env("RUSTC_BOOTSTRAP", "1")
            .args([
                "fuzz",
                "run",
                target,
                "--",
                &format!("-max_total_time={seconds}"),
            ]))?;
    }
    Ok(())
}
