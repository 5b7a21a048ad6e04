//! Telling the caller how far a transfer is.

use std::time::{Duration, Instant};

/// Tells of progress at most so often: a terminal shows no more.
const INTERVAL: Duration = Duration::from_millis(100);

/// How far a transfer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were verified by the receiver.
    pub bytes: u64,
    /// Bytes of the whole file, where that is known.
    pub total: Option<u64>,
}

/// Called with progress: at the first verified bytes, then about ten times a second, and at the end.
pub type OnProgress = Box<dyn FnMut(Progress) + Send>;

/// Calls [`OnProgress`] not too often.
pub(super) struct Meter {
    on_progress: Option<OnProgress>,
    bytes: u64,
    total: Option<u64>,
    last: Option<Instant>,
}

impl Meter {
    pub(super) fn new(on_progress: Option<OnProgress>, total: Option<u64>) -> Self {
        Self {
            on_progress,
            bytes: 0,
            total,
            last: None,
        }
    }

    pub(super) fn set_total(&mut self, total: u64) {
        self.total = Some(total);
    }

    pub(super) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        if self.last.is_none_or(|last| last.elapsed() >= INTERVAL) {
            self.last = Some(Instant::now());
            self.tell();
        }
    }

    /// Tells of the end, whenever the last call was.
    pub(super) fn finish(&mut self) {
        self.tell();
    }

    fn tell(&mut self) {
        let (bytes, total) = (self.bytes, self.total);
        if let Some(on_progress) = &mut self.on_progress {
            on_progress(Progress { bytes, total });
        }
    }
}
