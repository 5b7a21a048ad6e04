//! How a command ended, and what a shell would call that.

use airlock_wire::cua::v1::ProcessEnd;

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEnd {
    /// By itself.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// By a signal.
    Signaled {
        /// The signal's number.
        signal: i32,
        /// The signal's name, `SIGKILL` for one.
        name: String,
    },
    /// It took longer than allowed and was killed with all its children.
    TimedOut,
    /// It never ran: no such program, or not one that can be run.
    NotRun {
        /// 127 when there is no such program, 126 when it cannot be run.
        code: i32,
        /// Why.
        reason: String,
    },
}

impl ExecEnd {
    /// Whether it ended by itself with exit code 0.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Exited { code: 0 })
    }

    /// The exit code as a shell would give it: 124 timed out, 126 cannot run, 127 not found,
    /// 128 + N killed by signal N.
    pub fn shell_code(&self) -> i32 {
        match self {
            Self::Exited { code } | Self::NotRun { code, .. } => *code,
            Self::Signaled { signal, .. } => 128 + signal,
            Self::TimedOut => 124,
        }
    }

    pub(super) fn from_wire(end: ProcessEnd) -> Self {
        if end.timed_out {
            return Self::TimedOut;
        }
        if !end.error.is_empty() {
            return Self::NotRun {
                code: end.exit_code.unwrap_or(126),
                reason: end.error,
            };
        }
        let signal = if end.signal_number != 0 {
            end.signal_number
        } else {
            end.signal
        };
        if signal != 0 && end.exit_code.is_none() {
            let name = if end.signal_name.is_empty() {
                format!("signal {signal}")
            } else {
                end.signal_name
            };
            return Self::Signaled { signal, name };
        }
        Self::Exited {
            code: end.exit_code.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use airlock_wire::cua::v1::Signal;

    use super::*;

    #[test]
    fn ends_map_to_what_a_shell_gives() {
        let end = |end: ProcessEnd| ExecEnd::from_wire(end);
        assert_eq!(
            end(ProcessEnd {
                exit_code: Some(3),
                ..Default::default()
            })
            .shell_code(),
            3
        );
        assert_eq!(
            end(ProcessEnd {
                signal_number: 11,
                ..Default::default()
            })
            .shell_code(),
            139
        );
        let killed = ProcessEnd {
            signal: Signal::Kill.into(),
            ..Default::default()
        };
        assert_eq!(end(killed).shell_code(), 137);
        assert_eq!(
            end(ProcessEnd {
                timed_out: true,
                ..Default::default()
            })
            .shell_code(),
            124
        );
        let missing = ProcessEnd {
            exit_code: Some(127),
            error: "no such".into(),
            ..Default::default()
        };
        assert_eq!(end(missing).shell_code(), 127);
        assert!(
            end(ProcessEnd {
                exit_code: Some(0),
                ..Default::default()
            })
            .is_success()
        );
    }
}
