//! Running other programs, loudly.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Says what happens next.
#[expect(
    clippy::print_stderr,
    reason = "xtask talks to the person who called it"
)]
pub(crate) fn say(text: &str) {
    eprintln!("xtask: {text}");
}

/// Runs `command`, showing it first; fails when it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    say(&show(command));
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", show(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", show(command));
    }
    Ok(())
}

/// Runs `command` and returns what it prints.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", show(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", show(command), output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The cargo that runs this.
pub(crate) fn cargo(root: &std::path::Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

fn show(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|arg| arg.to_string_lossy().into_owned()),
    );
    words.join(" ")
}
