//! Processes that stay themselves when pids are reused.

use std::io;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::protocol::ProcessId;

/// Pause between two looks at a process that is about to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

impl ProcessId {
    /// The calling process.
    pub fn current() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// The process that has `pid` now. A zombie counts as gone.
    pub fn of(pid: u32) -> io::Result<Self> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, format!("no process {pid}"));
        let start_ticks = airlock_process::start_time(pid).map_err(|_| gone())?;
        if !airlock_process::is_running(pid, start_ticks) {
            return Err(gone());
        }
        Ok(Self { pid, start_ticks })
    }

    /// Whether this very process still runs.
    pub fn is_alive(&self) -> bool {
        airlock_process::is_running(self.pid, self.start_ticks)
    }

    /// Sends SIGKILL to this very process, if it still runs.
    ///
    /// The pidfd is opened before the check, so a reused pid is never hit.
    pub fn kill(&self) -> io::Result<()> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return Ok(()) };
        let fd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if !self.is_alive() {
            return Ok(());
        }
        match rustix::process::pidfd_send_signal(&fd, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Completes when this very process is gone.
    ///
    /// It looks again and again instead of waiting on a pidfd: the processes waited for are about
    /// to end, and the runtime has no safe way to watch a descriptor that is no stream.
    pub async fn gone(&self) {
        while self.is_alive() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_is_itself_only_while_it_lives() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let id = ProcessId::of(child.id()).unwrap();
        assert!(id.is_alive());
        let other = ProcessId {
            start_ticks: id.start_ticks + 1,
            ..id
        };
        assert!(!other.is_alive());
        other.kill().unwrap();
        assert!(
            id.is_alive(),
            "a signal reached a process that was not meant"
        );
        id.kill().unwrap();
        id.gone().await;
        child.wait().unwrap();
        assert!(!id.is_alive());
        id.kill().unwrap();
        id.gone().await;
    }

    #[test]
    fn a_zombie_is_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        while ProcessId::of(pid).is_ok() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
