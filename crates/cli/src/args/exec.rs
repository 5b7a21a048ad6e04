//! `airlock exec`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use airlock_model::SpaceName;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser as _};

/// What to run, and where.
#[derive(Debug, Args)]
#[command(after_help = "\
The command's output arrives as it is, byte for byte. Standard input is forwarded when it is not a \
terminal, or with -i.

The exit code is the command's; 124 it was stopped by --timeout, 125 Airlock itself failed, 126 it \
cannot be run, 127 there is no such command, 128+N signal N ended it, 130 Ctrl-C.

--json says which: it holds the output back and prints one object at the end with outcome (exited, \
signaled, timed_out, cannot_run, not_found, airlock_failed or cancelled), exit_code, signal, \
timed_out, message, ms, stdout_base64, stderr_base64, and stdout_truncated and stderr_truncated, \
which are true when a stream had more than 64 MiB.")]
pub(crate) struct ExecArgs {
    /// The Space
    pub(crate) name: SpaceName,
    /// Folder to run in; the user's home if absent
    #[arg(long, value_name = "D")]
    pub(crate) cwd: Option<OsString>,
    /// Variable to add to the command's environment; may be given several times
    #[arg(long, value_name = "K=V", value_parser = OsStringValueParser::new().try_map(|text| variable(&text)))]
    pub(crate) env: Vec<Variable>,
    /// User to run as
    #[arg(long, value_name = "U")]
    pub(crate) user: Option<String>,
    /// Seconds after which the command and all it started is stopped
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Forward standard input even when it is a terminal
    #[arg(long, short)]
    pub(crate) interactive: bool,
    /// Print one object at the end instead of the output
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_names = ["CMD", "ARG"])]
    pub(crate) command: Vec<OsString>,
}

/// One variable of an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    /// Its name, not empty.
    pub(crate) name: OsString,
    /// Its value.
    pub(crate) value: OsString,
}

fn variable(text: &OsStr) -> Result<Variable, String> {
    let bytes = text.as_bytes();
    match bytes.iter().position(|&byte| byte == b'=') {
        Some(0) => Err("the name before = is empty".to_owned()),
        Some(at) => Ok(Variable {
            name: OsStr::from_bytes(&bytes[..at]).to_owned(),
            value: OsStr::from_bytes(&bytes[at + 1..]).to_owned(),
        }),
        None => Err("expected K=V".to_owned()),
    }
}

/// Seconds with or without a fraction. Zero would stop every command before it began.
fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a number of seconds above 0, such as 30 or 0.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    if duration.is_zero() {
        Err(wrong())
    } else {
        Ok(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_split_at_its_first_equals_sign() {
        let found = variable(OsStr::new("A=b=c")).unwrap();
        assert_eq!((found.name, found.value), ("A".into(), "b=c".into()));
        let raw = variable(OsStr::from_bytes(b"A=\xff")).unwrap();
        assert_eq!(raw.value.as_bytes(), b"\xff");
        assert!(variable(OsStr::new("=x")).is_err());
        assert!(variable(OsStr::new("x")).is_err());
        assert!(variable(OsStr::new("")).is_err());
    }

    #[test]
    fn a_timeout_is_a_time_above_zero() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        for text in ["0", "-1", "nan", "inf", "1e99", "", "1s"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
