//! What became of a command, and the exit code that says it.

use std::io;

use airlock::ExecEnd;
use serde::Serialize;

use super::Failure;
use crate::args::exec::ExecArgs;
use crate::commands::Context;
use crate::exit::{CommandError, Exit, exec as code};

/// The word for what became of a command. Stable: `--json` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// It ended by itself.
    Exited,
    /// A signal ended it.
    Signaled,
    /// It was stopped by `--timeout`.
    TimedOut,
    /// It exists and cannot be run.
    CannotRun,
    /// There is no such command.
    NotFound,
    /// Nothing is known of it.
    AirlockFailed,
    /// Ctrl-C.
    Cancelled,
}

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) word: Word,
    /// The command's own, when it exited.
    pub(super) exit_code: Option<u8>,
    /// The signal that ended it.
    pub(super) signal: Option<u8>,
    /// What `airlock exec` ends with.
    pub(super) code: u8,
    /// Why it did not run or end, for people; silent where there is nothing to say.
    pub(super) error: CommandError,
}

impl Outcome {
    pub(super) fn of(result: Result<ExecEnd, Failure>) -> Self {
        let plain = |word, code| Self {
            word,
            exit_code: None,
            signal: None,
            code,
            error: CommandError::silent(code),
        };
        match result {
            Ok(ExecEnd::Exited { code }) => {
                let code = byte(code);
                Self {
                    exit_code: Some(code),
                    ..plain(Word::Exited, code)
                }
            }
            Ok(ExecEnd::Signaled { signal, name: _ }) => {
                let signal = byte(signal);
                let code = code::SIGNAL_BASE.saturating_add(signal);
                Self {
                    signal: Some(signal),
                    ..plain(Word::Signaled, code)
                }
            }
            Ok(ExecEnd::TimedOut) => plain(Word::TimedOut, Exit::TimedOut.code()),
            Ok(ExecEnd::NotRun { code, reason }) => {
                let (word, code) = if byte(code) == code::NOT_FOUND {
                    (Word::NotFound, code::NOT_FOUND)
                } else {
                    (Word::CannotRun, code::CANNOT_RUN)
                };
                let error = CommandError::new(Exit::Failure, reason).with_code(code);
                Self {
                    error,
                    ..plain(word, code)
                }
            }
            Err(Failure::Cancelled) => plain(Word::Cancelled, Exit::Cancelled.code()),
            Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                plain(Word::AirlockFailed, code::SIGPIPE)
            }
            Err(Failure::Output(error)) => {
                Self::failed(CommandError::stdout(&error, Exit::Failure))
            }
            Err(Failure::Airlock(error)) if error.code() == Exit::Cancelled.code() => {
                plain(Word::Cancelled, Exit::Cancelled.code())
            }
            Err(Failure::Airlock(error)) => Self::failed(error),
        }
    }

    /// Whatever the reason, one code: any other could be the command's own.
    fn failed(error: CommandError) -> Self {
        Self {
            word: Word::AirlockFailed,
            exit_code: None,
            signal: None,
            code: code::AIRLOCK_FAILED,
            error: error.with_code(code::AIRLOCK_FAILED),
        }
    }

    /// Ends the program: says what a person does not see from the command's own output.
    pub(super) fn finish(self, args: &ExecArgs, context: &Context) -> Result<(), CommandError> {
        match self.word {
            Word::Exited if self.code == 0 => return Ok(()),
            Word::TimedOut => {
                let seconds = args.timeout.unwrap_or_default().as_secs_f64();
                context
                    .out
                    .note(&format!("stopped after {seconds} s (--timeout)"));
            }
            Word::Exited
            | Word::Signaled
            | Word::CannotRun
            | Word::NotFound
            | Word::AirlockFailed
            | Word::Cancelled => {}
        }
        Err(self.error)
    }
}

/// Exit codes and signals are bytes on Linux; what a Space says need not be.
fn byte(number: i32) -> u8 {
    u8::try_from(number & 0xff).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(result: Result<ExecEnd, Failure>, word: Word, code: u8) -> Outcome {
        let outcome = Outcome::of(result);
        assert_eq!((outcome.word, outcome.code), (word, code));
        assert_eq!(outcome.error.code(), code);
        outcome
    }

    #[test]
    fn codes_are_the_documented_ones() {
        check(Ok(ExecEnd::Exited { code: 0 }), Word::Exited, 0);
        check(Ok(ExecEnd::Exited { code: 3 }), Word::Exited, 3);
        check(Ok(ExecEnd::Exited { code: 255 }), Word::Exited, 255);
        let killed = ExecEnd::Signaled {
            signal: 9,
            name: "SIGKILL".into(),
        };
        check(Ok(killed), Word::Signaled, 137);
        check(Ok(ExecEnd::TimedOut), Word::TimedOut, 124);
        let not_run = |code| ExecEnd::NotRun {
            code,
            reason: "why".into(),
        };
        let missing = check(Ok(not_run(127)), Word::NotFound, 127);
        assert_eq!(missing.error.message(), Some("why"));
        check(Ok(not_run(126)), Word::CannotRun, 126);
        check(Ok(not_run(1)), Word::CannotRun, 126);
    }

    #[test]
    fn what_airlock_does_wrong_is_never_taken_for_the_command() {
        for exit in [
            Exit::Failure,
            Exit::NotFound,
            Exit::NoAnswer,
            Exit::Usage,
            Exit::TimedOut,
        ] {
            let failure = Failure::Airlock(CommandError::new(exit, "x"));
            check(Err(failure), Word::AirlockFailed, 125);
        }
        let cancelled = Failure::Airlock(CommandError::new(Exit::Cancelled, "cancelled"));
        check(Err(cancelled), Word::Cancelled, 130);
        check(Err(Failure::Cancelled), Word::Cancelled, 130);
        let full = io::Error::from(io::ErrorKind::StorageFull);
        check(Err(Failure::Output(full)), Word::AirlockFailed, 125);
        let closed = io::Error::from(io::ErrorKind::BrokenPipe);
        let outcome = check(Err(Failure::Output(closed)), Word::AirlockFailed, 141);
        assert_eq!(outcome.error.message(), None);
    }

    #[test]
    fn a_code_outside_a_byte_keeps_its_low_byte() {
        check(Ok(ExecEnd::Exited { code: 256 + 3 }), Word::Exited, 3);
        check(Ok(ExecEnd::Exited { code: -1 }), Word::Exited, 255);
    }
}
