//! `cargo xtask test` and `cargo xtask ci`.

use std::path::Path;

use anyhow::Result;

use crate::run::{cargo, run, say};
use crate::{build, codegen, layers, setup};

/// Everything that must hold.
pub(crate) fn ci(root: &Path) -> Result<()> {
    run(cargo(root).args(["fmt", "--all", "--check"]))?;
    run(cargo(root).args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ]))?;
    run(cargo(root)
        .args([
            "doc",
            "--workspace",
            "--no-deps",
            "--quiet",
            "--document-private-items",
        ])
        .args(["--exclude", "airlock-cli"])
        .env("RUSTDOCFLAGS", "-D warnings"))?;
    all(root, None)
}

/// All tests.
pub(crate) fn all(root: &Path, filter: Option<&str>) -> Result<()> {
    setup::run_quietly_if_complete()?;
    if filter.is_none() {
        unit(root)?;
    }
    let built = build::airlock(root)?;
    say("end-to-end tests on real Spaces");
    let mut command = cargo(root);
    command.args(["test", "--package", "airlock-e2e", "--quiet"]);
    command
        .env("AIRLOCK_TEST_PROGRAM", &built.airlock)
        .env("AIRLOCK_TEST_GUESTD", &built.guestd);
    // The SDK's tests run in a program that is not airlock, and need one as keeper.
    command
        .env("AIRLOCK_KEEPER", &built.airlock)
        .env("AIRLOCK_GUESTD", &built.guestd);
    command.arg("--");
    if let Some(filter) = filter {
        command.arg(filter);
    }
    // Spaces share two cores here and elsewhere: more than two at once only slow each other.
    command.args(["--test-threads", "2"]);
    run(&mut command)
}

/// The tests that need no Space.
pub(crate) fn unit(root: &Path) -> Result<()> {
    layers::check(root)?;
    codegen::run(root, true)?;
    run(cargo(root).args(["test", "--workspace", "--exclude", "airlock-e2e", "--quiet"]))
}
