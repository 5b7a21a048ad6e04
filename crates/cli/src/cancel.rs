//! Ctrl-C: the first asks politely, the second ends the program at once.
//!
//! The signals are waited for on a thread of their own, so that a program that is stuck, for
//! example in a write to a pipe that nobody reads, still hears them.

use std::thread;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;
use crate::output::Output;

/// Signals this soon after the first are the first one again: `timeout` and other supervisors send
/// theirs both to the process and to its group, and nobody presses a key twice as fast.
const SAME_REQUEST: Duration = Duration::from_millis(300);

/// A token that is cancelled by the first Ctrl-C, hang-up or request to terminate.
///
/// Signals that this process was started to ignore (`nohup`, a background job of a script) stay
/// ignored.
pub(crate) fn on_signals(out: Output) -> std::io::Result<CancellationToken> {
    let token = CancellationToken::new();
    let kinds: Vec<SignalKind> = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ]
    .into_iter()
    .filter(|kind| !is_ignored(kind.as_raw_value()))
    .collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // Registered before the thread starts: a signal from now on is not lost.
    let mut signals = {
        let _guard = runtime.enter();
        kinds
            .into_iter()
            .map(signal)
            .collect::<Result<Vec<_>, _>>()?
    };
    let cancel = token.clone();
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            runtime.block_on(async {
                any(&mut signals).await;
                cancel.cancel();
                out.note("stopping; Ctrl-C again ends at once");
                tokio::time::sleep(SAME_REQUEST).await;
                forget(&mut signals).await;
                any(&mut signals).await;
                std::process::exit(i32::from(Exit::Cancelled.code()));
            });
        })?;
    Ok(token)
}

/// Waits for whichever comes first.
async fn any(signals: &mut [tokio::signal::unix::Signal]) {
    std::future::poll_fn(|context| {
        for signal in &mut *signals {
            if signal.poll_recv(context).is_ready() {
                return std::task::Poll::Ready(());
            }
        }
        std::task::Poll::Pending
    })
    .await;
}

/// Drops what came until now.
async fn forget(signals: &mut [tokio::signal::unix::Signal]) {
    std::future::poll_fn(|context| {
        for signal in &mut *signals {
            while signal.poll_recv(context) == std::task::Poll::Ready(Some(())) {}
        }
        std::task::Poll::Ready(())
    })
    .await;
}

/// Whether the signal is ignored, by `/proc/self/status`; where there is none, it is not.
fn is_ignored(signal: i32) -> bool {
    fs_err::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| ignored_mask(&status))
        .is_some_and(|mask| signal >= 1 && mask >> (signal - 1) & 1 == 1)
}

fn ignored_mask(status: &str) -> Option<u64> {
    let field = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(field.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_is_read() {
        let status = "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001003\n";
        // Signals 1 (hang-up), 2 (interrupt) and 13 (pipe).
        assert_eq!(ignored_mask(status), Some(0x1003));
        assert_eq!(ignored_mask(""), None);
    }

    #[test]
    fn the_pipe_signal_is_ignored_by_every_rust_program() {
        if cfg!(target_os = "linux") {
            assert!(is_ignored(13));
            assert!(!is_ignored(15));
        }
    }
}
