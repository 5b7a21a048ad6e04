//! stdout is data, stderr is talk.
//!
//! Data never has colour. Talk has it only on a terminal and never with `NO_COLOR` (anstream
//! decides), and reads the same without.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use crate::exit::{CommandError, Exit};

pub(crate) mod table;

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const CYAN: &str = "\x1b[1;36m";
const RESET: &str = "\x1b[0m";

/// How much a command says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Talk {
    /// What went wrong, nothing else.
    Quiet,
    /// What a person wants to know.
    Normal,
    /// Details too.
    Verbose,
}

/// Where a command's words go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    talk: Talk,
}

impl Output {
    pub(crate) fn new(talk: Talk) -> Self {
        Self { talk }
    }

    /// Says something that `--quiet` leaves out.
    pub(crate) fn note(self, text: &str) {
        match self.talk {
            Talk::Quiet => {}
            Talk::Normal | Talk::Verbose => say("", text),
        }
    }

    /// Says something that only `--verbose` asks for.
    pub(crate) fn detail(self, text: &str) {
        match self.talk {
            Talk::Quiet | Talk::Normal => {}
            Talk::Verbose => say("", text),
        }
    }

    /// Says something that a person should look into.
    pub(crate) fn warn(self, text: &str) {
        match self.talk {
            Talk::Quiet => {}
            Talk::Normal | Talk::Verbose => say(&format!("{YELLOW}warning:{RESET} "), text),
        }
    }

    /// Whether a bar that moves has somebody who watches it.
    pub(crate) fn shows_progress(self) -> bool {
        match self.talk {
            Talk::Quiet => false,
            Talk::Normal | Talk::Verbose => io::stderr().is_terminal(),
        }
    }
}

/// Writes text that ends in a line break to stdout.
pub(crate) fn data(text: &str) -> Result<(), CommandError> {
    bytes(text.as_bytes())
}

/// Writes bytes to stdout and flushes them.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), CommandError> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        // Who reads the first line of a list and leaves has what they came for.
        .map_err(|error| CommandError::stdout(&error, Exit::Success))
}

/// Writes a value as one line of JSON to stdout.
pub(crate) fn json(value: &impl Serialize) -> Result<(), CommandError> {
    let mut line = serde_json::to_string(value)
        .map_err(|error| CommandError::from_error(Exit::Failure, &error))?;
    line.push('\n');
    data(&line)
}

/// Says why a command failed, and what can be done. Never left out.
pub(crate) fn error(error: &CommandError) {
    if let Some(message) = error.message() {
        say(&format!("{RED}error:{RESET} "), message);
    }
    for hint in error.hints() {
        say(&format!("{CYAN}hint:{RESET} "), hint);
    }
}

/// Writes a line to stderr. Nobody is left to tell when that fails.
fn say(label: &str, text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{label}{}", shown(text));
}

/// `text` as a terminal may get it: what it would obey instead of show is escaped.
///
/// Messages carry words and names from Spaces, which are hostile, and names of files.
fn shown(text: &str) -> Cow<'_, str> {
    let is_obeyed = |c: char| match c {
        '\n' | '\t' => false,
        // These turn the order of what follows around.
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => c.is_control(),
    };
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_obeyed(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// A number of bytes for people, with one decimal from a KiB on.
pub(crate) fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would be shown as 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_nothing_that_it_would_obey() {
        for (text, expected) in [
            ("plain, ü → \n\ttext", "plain, ü → \n\ttext"),
            ("\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            ("a\rb\x08\x7f\u{9b}2J", "a\\rb\\u{8}\\u{7f}\\u{9b}2J"),
            ("evil\u{202e}txt.exe", "evil\\u{202e}txt.exe"),
        ] {
            assert_eq!(shown(text), expected);
        }
    }

    #[test]
    fn bytes_are_shown_in_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (1024 * 1024, "1.0 MiB"),
            (10 * 1024 * 1024 * 1024, "10.0 GiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(human_bytes(bytes), text);
        }
    }
}
