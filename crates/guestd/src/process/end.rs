//! How a command ended, as the wire has it.

use airlock_wire::cua::v1::{ProcessEnd, Signal};
use rustix::process::WaitIdStatus;

/// The end that the kernel reports.
pub(super) fn of_status(status: &WaitIdStatus) -> ProcessEnd {
    let mut end = ProcessEnd {
        exit_code: status.exit_status(),
        ..ProcessEnd::default()
    };
    if let Some(signal) = status.terminating_signal() {
        end.signal_number = signal;
        end.signal_name = signal_name(signal);
        // Signals without a name in the contract travel as their number alone.
        end.signal = Signal::try_from(signal)
            .unwrap_or(Signal::Unspecified)
            .into();
    }
    end
}

/// The end of a command whose status somebody else took.
pub(super) fn lost() -> ProcessEnd {
    ProcessEnd {
        lost: true,
        error: "the exit status was lost".to_owned(),
        ..ProcessEnd::default()
    }
}

/// The name of a signal by Linux's numbers.
fn signal_name(number: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
        "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    let name = usize::try_from(number - 1)
        .ok()
        .and_then(|index| NAMES.get(index));
    name.map_or_else(|| format!("SIG{number}"), |name| format!("SIG{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_linux_names() {
        assert_eq!(signal_name(9), "SIGKILL");
        assert_eq!(signal_name(15), "SIGTERM");
        assert_eq!(signal_name(28), "SIGWINCH");
        assert_eq!(signal_name(31), "SIGSYS");
        assert_eq!(signal_name(34), "SIG34");
    }
}
