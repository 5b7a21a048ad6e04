//! Root in a Space attacks the host, and gets nothing of it.
//!
//! What is refused inside is shown to work outside wherever that is cheap: a wall that nobody ran
//! into proves nothing. Most of it is for containers, whose kernel is the host's; what a machine
//! can try as well (the lane, lies about files, hunger) it tries too.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on shall end, and say why"
)]

mod calls;
mod control;
mod files;
mod lane;
mod neighbours;
mod resources;

use std::path::Path;
use std::process::Stdio;

use airlock_e2e::{Ran, TestSpace, airlock, command, run};

/// Root's python3 runs a script in the Space, which must be of the `linux` image.
fn python(space: &TestSpace, script: &str, args: &[&str]) -> Ran {
    run(&mut python_command(space, script, args))
}

/// [`python`], to be started by the caller.
fn python_command(space: &TestSpace, script: &str, args: &[&str]) -> std::process::Command {
    let words = [
        "exec",
        "--timeout",
        "120",
        &space.name,
        "--",
        "python3",
        "-c",
        script,
    ];
    let mut command = command([&words, args].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn upload(space: &TestSpace, from: &Path, to: &str) -> Ran {
    airlock(["cp", from.to_str().unwrap(), &space.at(to)])
}
