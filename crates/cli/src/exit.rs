//! What a command ends with: an exit code, a message and hints.

use std::error::Error as StdError;
use std::io;
use std::path::Path;

/// The exit codes of every command but `exec`. Stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// It worked.
    Success = 0,
    /// It did not work.
    Failure = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// No such Space, image, file or folder.
    NotFound = 3,
    /// This host lacks something, or Airlock cannot do this.
    Unsupported = 4,
    /// Nothing answers.
    NoAnswer = 5,
    /// Permission denied.
    Denied = 6,
    /// The host's disk is full.
    HostDiskFull = 7,
    /// It took longer than allowed.
    TimedOut = 124,
    /// Ctrl-C.
    Cancelled = 130,
}

impl Exit {
    /// The code itself.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }
}

/// The codes of `exec` that are not the command's own.
pub(crate) mod exec {
    /// Airlock itself failed, so nothing is known of the command.
    pub(crate) const AIRLOCK_FAILED: u8 = 125;
    /// The command exists and cannot be run.
    pub(crate) const CANNOT_RUN: u8 = 126;
    /// There is no such command.
    pub(crate) const NOT_FOUND: u8 = 127;
    /// Added to the number of the signal that ended the command.
    pub(crate) const SIGNAL_BASE: u8 = 128;
    /// What a program ends with whose reader went away.
    pub(crate) const SIGPIPE: u8 = SIGNAL_BASE + 13;
}

/// Why a command did not end well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandError {
    code: u8,
    message: Option<String>,
    hints: Vec<String>,
}

impl CommandError {
    /// Ends with this kind and message.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            code: exit.code(),
            message: Some(message.into()),
            hints: Vec::new(),
        }
    }

    /// Ends without a word: everything worth saying was said, or nobody listens.
    pub(crate) fn silent(code: u8) -> Self {
        Self {
            code,
            message: None,
            hints: Vec::new(),
        }
    }

    /// Ends with the error's message and, after colons, those of its causes.
    pub(crate) fn from_error(exit: Exit, error: &dyn StdError) -> Self {
        Self::new(exit, chain(error))
    }

    /// An I/O error of a local path, with the code that fits it.
    pub(crate) fn from_io(what: &str, path: &Path, error: &io::Error) -> Self {
        Self::new(
            io_exit(error),
            format!("cannot {what} {}: {error}", path.display()),
        )
    }

    /// Standard output could not be written. Silent when its reader went away.
    pub(crate) fn stdout(error: &io::Error, when_closed: Exit) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::silent(when_closed.code());
        }
        Self::new(
            io_exit(error),
            format!("cannot write to standard output: {error}"),
        )
    }

    /// Adds what a person can do.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds several of them.
    #[must_use]
    pub(crate) fn with_hints(mut self, hints: impl IntoIterator<Item = String>) -> Self {
        self.hints.extend(hints);
        self
    }

    /// Ends with another code and the same words.
    #[must_use]
    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// The process's exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// What to say, if anything.
    pub(crate) fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// What a person can do.
    pub(crate) fn hints(&self) -> &[String] {
        &self.hints
    }
}

/// The message of an error and of its causes, separated by colons.
///
/// A cause whose words already end the text is not said twice; some libraries repeat theirs.
pub(crate) fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}

/// The exit code that fits an error of the host's file system.
pub(crate) fn io_exit(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Exit::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Exit::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Exit::HostDiskFull,
        io::ErrorKind::TimedOut => Exit::TimedOut,
        _ => Exit::Failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] io::Error);

    #[test]
    fn codes_are_the_documented_ones() {
        let codes = [
            Exit::Success,
            Exit::Failure,
            Exit::Usage,
            Exit::NotFound,
            Exit::Unsupported,
            Exit::NoAnswer,
            Exit::Denied,
            Exit::HostDiskFull,
            Exit::TimedOut,
            Exit::Cancelled,
        ]
        .map(Exit::code);
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 124, 130]);
    }

    #[test]
    fn causes_follow_their_effects_once() {
        let error = Outer(io::Error::other("inner"));
        assert_eq!(chain(&error), "outer: inner");
        let repeated = Outer(io::Error::other("outer"));
        assert_eq!(chain(&repeated), "outer");
    }

    #[test]
    fn a_reader_that_went_away_is_not_talked_to() {
        let closed = io::Error::from(io::ErrorKind::BrokenPipe);
        let error = CommandError::stdout(&closed, Exit::Success);
        assert_eq!((error.code(), error.message()), (0, None));
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(CommandError::stdout(&full, Exit::Success).code(), 7);
    }
}
