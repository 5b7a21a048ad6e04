//! What a starting keeper tells its starter.

use std::io::Write;
use std::os::fd::AsFd;

use crate::protocol::{LaunchEvent, LaunchFailure};

/// The starter's end of standard output, until the Space is ready or failed.
#[derive(Debug)]
pub(crate) struct Reporter(());

impl Reporter {
    /// Takes over standard output.
    pub(crate) fn new() -> Self {
        Self(())
    }

    /// Sends `event`. A starter that is gone is noticed elsewhere, by its end of standard input.
    #[expect(
        clippy::unused_self,
        reason = "holding a Reporter means that the pipe is open"
    )]
    pub(crate) fn send(&self, event: &LaunchEvent) {
        let Ok(mut line) = serde_json::to_vec(event) else {
            return;
        };
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        let sent = out.write_all(&line).and_then(|()| out.flush());
        if let Err(error) = sent {
            tracing::debug!(%error, "the starter does not listen any more");
        }
    }

    /// Sends the last event and lets go of the pipe and of standard input.
    pub(crate) fn finish(self, event: &LaunchEvent) {
        self.send(event);
        let null = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null");
        let replaced = null.and_then(|null| {
            rustix::stdio::dup2_stdout(null.as_fd())?;
            rustix::stdio::dup2_stdin(null.as_fd())?;
            Ok(())
        });
        if let Err(error) = replaced {
            tracing::warn!(%error, "cannot let go of the starter's pipe");
        }
    }

    /// Reports a failure that came before anything else.
    pub(crate) fn failed_early(message: &str) {
        Self::new().finish(&LaunchEvent::Failed {
            kind: LaunchFailure::Host,
            message: message.to_owned(),
            hints: Vec::new(),
            console_tail: String::new(),
        });
    }
}
