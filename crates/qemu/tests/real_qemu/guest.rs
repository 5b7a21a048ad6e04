//! Talks to the script in the guest.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long one command may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A guest behind its forwarded port.
pub(crate) struct Guest {
    pub(crate) port: u16,
}

impl Guest {
    /// Waits until the guest answers at all.
    pub(crate) async fn ready(&self) {
        let answered = async {
            // The forwarder accepts before the guest listens, so only an answer counts. A
            // connection made too early is retried by the forwarder after seconds only, so a new
            // one is faster than patience.
            let patience = Duration::from_millis(300);
            let here = Some("here\n".to_owned());
            while self.try_run("echo here", patience).await != here {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), answered)
            .await
            .unwrap();
    }

    /// Runs a shell line in the guest and returns what it prints.
    pub(crate) async fn run(&self, line: &str) -> String {
        let answered = async {
            loop {
                if let Some(output) = self
                    .try_run(&format!("{line}; echo --done"), PATIENCE)
                    .await
                    && let Some(output) = output.strip_suffix("--done\n")
                {
                    return output.to_owned();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), answered)
            .await
            .unwrap()
    }

    /// `None` when the connection fails, as it does while the script restarts its listener.
    async fn try_run(&self, line: &str, patience: Duration) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        stream
            .write_all(format!("{line}\n").as_bytes())
            .await
            .ok()?;
        let mut output = String::new();
        tokio::time::timeout(patience, stream.read_to_string(&mut output))
            .await
            .ok()?
            .ok()?;
        Some(output)
    }
}
