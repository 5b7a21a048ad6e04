//! The lines guestd prints: short, one each, on standard error or, in a machine, the console.

use std::fmt;
use std::io::Write as _;

/// Prints `airlock-guestd: LINE`.
///
/// A console that takes nothing must not stop guestd, so a failure is ignored.
pub fn say(line: impl fmt::Display) {
    // One write for the whole line, so that lines of two processes do not mix.
    let line = format!("airlock-guestd: {line}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// An error and all its causes in one line.
pub struct Causes<'a>(pub &'a (dyn std::error::Error + 'a));

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
