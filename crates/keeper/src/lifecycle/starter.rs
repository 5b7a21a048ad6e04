//! The process that started a keeper: what it wants, and whether it still waits.

use std::io::BufRead;

use tokio_util::sync::CancellationToken;

use crate::protocol::Launch;

/// Reads what to run from standard input.
pub(super) fn read_launch() -> std::io::Result<Launch> {
    let mut line = String::new();
    // Unbuffered beyond the line: the descriptor is watched for its end afterwards.
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Notices when the process that started this keeper goes away before the Space is ready: it
/// holds the other end of standard input open for as long as it waits.
pub(super) struct Starter {
    /// Fires when it is gone.
    pub(super) gone: CancellationToken,
}

impl Starter {
    pub(super) fn watch() -> Self {
        let gone = CancellationToken::new();
        let found = gone.clone();
        std::thread::spawn(move || {
            let mut rest = String::new();
            // Ends at end of file, or with an error; both mean that nobody waits.
            let _ = std::io::stdin().lock().read_line(&mut rest);
            found.cancel();
        });
        Self { gone }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_cancelled()
    }
}
