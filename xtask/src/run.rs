//! Running other programs, loudly.

use std::io::{BufRead as _, BufReader};
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

/// Runs `command` and returns what it prints, or, when it fails, what it says of that; its talk is
/// shown meanwhile.
pub(crate) fn attempt(command: &mut Command) -> Result<std::result::Result<String, String>> {
    say(&show(command));
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", show(command)))?;
    let mut talk = String::new();
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).lines() {
            let line = line?;
            say(&line);
            // What went well before the error explains nothing.
            if line.starts_with("error:") {
                talk.clear();
            }
            if !talk.is_empty() {
                talk.push(' ');
            }
            talk.push_str(&line);
        }
    }
    // A name fits into the pipe, so nothing waited for its reader above.
    let output = child.wait_with_output()?;
    let printed = String::from_utf8(output.stdout)?.trim().to_owned();
    Ok(if output.status.success() {
        Ok(printed)
    } else {
        Err(talk)
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_gives_the_name_or_the_reason() {
        let shell = |script: &str| attempt(Command::new("sh").args(["-c", script])).unwrap();
        assert_eq!(shell("echo note >&2; echo web"), Ok("web".to_owned()));
        let failed = shell("echo note >&2; echo 'error: no QEMU' >&2; echo 'hint: x' >&2; exit 4");
        assert_eq!(failed, Err("error: no QEMU hint: x".to_owned()));
    }
}
