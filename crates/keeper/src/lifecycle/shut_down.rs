//! Ending a machine, from asking politely to pulling the plug.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::guest::Guest;
use crate::runtime::Machine;
use crate::server::StopWish;

/// How long a machine may take to end after it was told to quit.
const QUIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Ends the machine: asks the Space, then QEMU, then the kernel. A later wish with less patience
/// shortens the wait, so `delete` never waits for a `stop` that hangs.
pub(super) async fn shut_down(
    guest: &Guest,
    machine: &mut Machine,
    grace: Duration,
    stop_in: &mut mpsc::Receiver<StopWish>,
    wishes: &mut Vec<StopWish>,
) {
    let mut deadline = tokio::time::Instant::now() + grace;
    if !grace.is_zero() {
        let asked = tokio::time::timeout_at(deadline, guest.power_off()).await;
        if !matches!(asked, Ok(Ok(()))) {
            tracing::warn!(?asked, "the Space does not shut down by itself");
        }
    }
    loop {
        tokio::select! {
            exit = machine.wait() => {
                tracing::info!(%exit, "the machine is off");
                return;
            }
            wish = stop_in.recv() => {
                if let Some(wish) = wish {
                    deadline = deadline.min(tokio::time::Instant::now() + wish.grace);
                    wishes.push(wish);
                }
            }
            () = tokio::time::sleep_until(deadline) => break,
        }
    }
    tracing::info!("pulling the plug");
    if tokio::time::timeout(QUIT_TIMEOUT, machine.quit())
        .await
        .is_err()
    {
        tracing::warn!("the machine does not quit");
    }
    machine.pull_plug().await;
}
