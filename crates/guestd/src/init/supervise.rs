//! Minds the serving process until the machine goes off.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount_remount};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use rustix::system::RebootCommand;

use super::settings::Settings;
use crate::console::say;
use crate::state::Ending;
use crate::sys::machine::signal_everyone;
use crate::sys::signals::SignalQueue;

/// Exit codes by which the serving process says what it wants.
const EXIT_POWER_OFF: u8 = 100;
const EXIT_REBOOT: u8 = 101;

/// A serving process that lived for less is not started again at once.
const SHORT_LIFE: Duration = Duration::from_secs(5);
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
/// How long all other processes get to end once the machine shall go off.
const FAREWELL: Duration = Duration::from_millis(500);

/// How the machine ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MachineEnd {
    PowerOff,
    Reboot,
}

/// The exit code that tells the first process about `ending`.
pub(super) fn exit_code(ending: Ending) -> ExitCode {
    match ending {
        Ending::Stop => ExitCode::SUCCESS,
        Ending::PowerOff => ExitCode::from(EXIT_POWER_OFF),
        Ending::Reboot => ExitCode::from(EXIT_REBOOT),
    }
}

/// Starts the serving process, again and again, and buries every orphan.
pub(super) fn run(settings: &Settings) -> MachineEnd {
    let signals = SignalQueue::block(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGPWR]);
    let mut backoff = FIRST_BACKOFF;
    loop {
        let started = Instant::now();
        match start(settings) {
            Ok(child) => match mind(&signals, child) {
                Life::Asked(end) => return end,
                Life::Died(how) => {
                    say(format_args!("the serving process {how}; starting it again"));
                }
            },
            Err(error) => say(format_args!("the serving process did not start: {error}")),
        }
        if started.elapsed() > SHORT_LIFE {
            backoff = FIRST_BACKOFF;
            continue;
        }
        if let Some(end) = pause(&signals, backoff) {
            return end;
        }
        backoff = (backoff * 2).min(LONGEST_BACKOFF);
    }
}

/// How the serving process ended.
enum Life {
    Asked(MachineEnd),
    Died(String),
}

fn start(settings: &Settings) -> std::io::Result<Pid> {
    // The program's own file is gone from the root by now; this link leads to it all the same.
    let child = Command::new("/proc/self/exe")
        .arg0("airlock-guestd")
        .args(["serve", "--inherited", &settings.fd().to_string()])
        .env_clear()
        .spawn()?;
    Pid::from_raw(child.id().cast_signed()).ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

fn mind(signals: &SignalQueue, child: Pid) -> Life {
    loop {
        match signals.wait(None) {
            Some(libc::SIGCHLD) => {
                if let Some(status) = bury(Some(child)) {
                    return judge(status);
                }
            }
            // It ends its commands first, and its own end then ends the machine.
            Some(_) => {
                let _ = kill_process(child, Signal::TERM);
                while bury(Some(child)).is_none() {
                    signals.wait(None);
                }
                return Life::Asked(MachineEnd::PowerOff);
            }
            None => {}
        }
    }
}

fn judge(status: WaitStatus) -> Life {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) if code == i32::from(EXIT_POWER_OFF) => Life::Asked(MachineEnd::PowerOff),
        (Some(code), _) if code == i32::from(EXIT_REBOOT) => Life::Asked(MachineEnd::Reboot),
        (Some(code), _) => Life::Died(format!("ended with code {code}")),
        (None, Some(signal)) => Life::Died(format!("was killed by signal {signal}")),
        (None, None) => Life::Died("is gone".to_owned()),
    }
}

/// Takes every dead child; gives the status of `wanted` when it was among them.
fn bury(wanted: Option<Pid>) -> Option<WaitStatus> {
    let mut found = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if Some(pid) == wanted {
            found = Some(status);
        }
    }
    found
}

/// Buries orphans for the length of `pause`; ends early when the machine shall go off.
fn pause(signals: &SignalQueue, pause: Duration) -> Option<MachineEnd> {
    let deadline = Instant::now() + pause;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        match signals.wait(Some(left)) {
            Some(libc::SIGCHLD) => {
                bury(None);
            }
            Some(_) => return Some(MachineEnd::PowerOff),
            None => {}
        }
    }
}

/// Ends every process, writes everything to the disks, and lets the machine go.
pub(super) fn end_machine(end: MachineEnd) -> ExitCode {
    end_everyone();
    rustix::fs::sync();
    // Without a root disk there is nothing to protect, and it fails.
    let _ = mount_remount("/", MountFlags::RDONLY, c"");
    let command = match end {
        MachineEnd::PowerOff => RebootCommand::PowerOff,
        MachineEnd::Reboot => RebootCommand::Restart,
    };
    if let Err(errno) = rustix::system::reboot(command) {
        say(format_args!("the machine does not end: {errno}"));
    }
    ExitCode::FAILURE
}

/// Ends every process of a container; its file system lives on outside.
pub(super) fn end_container() -> ExitCode {
    end_everyone();
    ExitCode::SUCCESS
}

/// Ends every other process, politely first.
fn end_everyone() {
    let signals = SignalQueue::block(&[libc::SIGCHLD]);
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        if signal_everyone(signal).is_err() {
            break;
        }
        let deadline = Instant::now() + FAREWELL;
        while has_children() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            signals.wait(Some(left));
        }
    }
}

fn has_children() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
