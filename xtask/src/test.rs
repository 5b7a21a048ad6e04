//! `cargo xtask test` and `cargo xtask ci`.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::run::{cargo, run, say};
use crate::{build, codegen, layers, setup};

/// On which kinds of Spaces the end-to-end tests run.
///
/// The names of the tests say what each needs (`e2e/src/kind.rs`).
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Kinds {
    /// Containers alone.
    Container,
    /// Machines alone, every test that one can pass.
    Vm,
    /// Every test on each kind that can pass it.
    Both,
}

/// Names, or parts of names, of tests that are left out.
fn left_out(kinds: Option<Kinds>) -> &'static [&'static str] {
    match kinds {
        None => &["::slow::vm"],
        Some(Kinds::Container) => &["::vm", "vm_only::"],
        Some(Kinds::Vm) => &["::container", "container_only::"],
        Some(Kinds::Both) => &[],
    }
}

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
    all(root, None, None)
}

/// All tests.
pub(crate) fn all(root: &Path, kinds: Option<Kinds>, filter: Option<&str>) -> Result<()> {
    setup::for_tests()?;
    if filter.is_none() {
        unit(root)?;
    }
    say("end-to-end tests on real Spaces");
    // Two at once: a Space has two processors, and more of them would only slow each other.
    let mut command = end_to_end(root)?;
    command.args(filter).args(["--test-threads", "2"]);
    for name in left_out(kinds) {
        command.args(["--skip", name]);
    }
    run(&mut command)
}

/// The tests that are too long for every day, one after the other.
pub(crate) fn torture(root: &Path) -> Result<()> {
    setup::for_tests()?;
    run(end_to_end(root)?.args(["--ignored", "--nocapture", "--test-threads", "1"]))
}

/// The end-to-end tests, up to the arguments of the test programs.
fn end_to_end(root: &Path) -> Result<Command> {
    let built = build::airlock(root)?;
    let mut command = cargo(root);
    command.args([
        "test",
        "--package",
        "airlock-e2e",
        "--quiet",
        "--no-fail-fast",
    ]);
    command.env("AIRLOCK_TEST_PROGRAM", &built.airlock);
    // The SDK's tests run in a program that is not airlock, and need one as keeper.
    command
        .env("AIRLOCK_KEEPER", &built.airlock)
        .env("AIRLOCK_GUESTD", &built.guestd);
    command.arg("--");
    Ok(command)
}

/// The tests that need no Space.
pub(crate) fn unit(root: &Path) -> Result<()> {
    layers::check(root)?;
    codegen::run(root, true)?;
    run(cargo(root).args([
        "test",
        "--workspace",
        "--exclude",
        "airlock-e2e",
        "--quiet",
        "--no-fail-fast",
    ]))
}
