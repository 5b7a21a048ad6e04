//! Writing a download while the next piece is copied out and checked.
//!
//! Checking a piece and writing it cost about the same where nothing is emulated, so a large
//! download has a thread for each.

use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use airlock_lane::AlignedBuf;

use crate::transfer::DownloadError;
use crate::transfer::target::{OpenTarget, Placed};

/// Pieces that wait for the thread; with the one in its hands and the one being filled, this
/// bounds the memory of a download.
const WAITING: usize = 1;

/// Where verified bytes go.
pub(super) enum Out {
    /// To the target at once.
    Here(OpenTarget),
    /// To the thread that has the target.
    Thread(Writer),
}

/// A thread that writes. Dropping it waits until the target is gone with what was written.
pub(super) struct Writer {
    pieces: Option<SyncSender<(AlignedBuf, usize)>>,
    emptied: Receiver<AlignedBuf>,
    thread: Option<JoinHandle<Result<OpenTarget, DownloadError>>>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.pieces = None;
        if let Some(thread) = self.thread.take() {
            // Its error is not the one that ended the download, and a panic in here would end the
            // process.
            let _ = thread.join();
        }
    }
}

impl Out {
    /// Writes to `target` on this thread.
    pub(super) fn here(target: OpenTarget) -> Self {
        Self::Here(target)
    }

    /// Writes to the file `target` on a thread of its own, through buffers of `piece_bytes` each.
    /// Without a thread, and to anything that may keep it waiting, on this one.
    pub(super) fn on_a_thread(target: OpenTarget, piece_bytes: usize) -> Self {
        if !target.is_file() {
            return Self::Here(target);
        }
        let (pieces, full) = sync_channel::<(AlignedBuf, usize)>(WAITING);
        let (give_back, emptied) = channel();
        for _ in 0..=WAITING {
            // The other end is held here.
            let _ = give_back.send(AlignedBuf::new(piece_bytes));
        }
        let (hand_over, handed) = channel::<OpenTarget>();
        let run = move || {
            let mut target = handed.recv().map_err(|_| DownloadError::Cancelled)?;
            for (buffer, bytes) in full {
                target.write(&buffer[..bytes])?;
                // The receiver of the download may have given up.
                let _ = give_back.send(buffer);
            }
            Ok(target)
        };
        let started = std::thread::Builder::new()
            .name("download-writer".into())
            .spawn(run);
        // Handed over only once there is somebody to take it.
        let Ok(thread) = started else {
            return Self::Here(target);
        };
        match hand_over.send(target) {
            Ok(()) => Self::Thread(Writer {
                pieces: Some(pieces),
                emptied,
                thread: Some(thread),
            }),
            Err(back) => Self::Here(back.0),
        }
    }

    /// Writes the first `bytes` of `buffer`, which is exchanged for one that may be filled next.
    pub(super) fn write_piece(
        &mut self,
        buffer: &mut AlignedBuf,
        bytes: usize,
    ) -> Result<(), DownloadError> {
        match self {
            Self::Here(target) => target.write(&buffer[..bytes]),
            Self::Thread(writer) => {
                let Ok(empty) = writer.emptied.recv() else {
                    return Err(self.failure());
                };
                let full = std::mem::replace(buffer, empty);
                match writer.pieces.as_ref().map(|to| to.send((full, bytes))) {
                    Some(Ok(())) => Ok(()),
                    Some(Err(_)) | None => Err(self.failure()),
                }
            }
        }
    }

    /// Writes bytes that came with a message.
    pub(super) fn write(&mut self, data: &[u8]) -> Result<(), DownloadError> {
        if let Self::Here(target) = self {
            return target.write(data);
        }
        let mut buffer = AlignedBuf::new(data.len());
        buffer[..data.len()].copy_from_slice(data);
        self.write_piece(&mut buffer, data.len())
    }

    /// Publishes once everything is written.
    pub(super) fn publish(self) -> Result<Placed, DownloadError> {
        match self {
            Self::Here(target) => target.publish(),
            Self::Thread(mut writer) => writer.end()?.publish(),
        }
    }

    /// Why the thread ended early.
    fn failure(&mut self) -> DownloadError {
        match self {
            Self::Thread(writer) => writer.end().err().unwrap_or(DownloadError::Cancelled),
            Self::Here(_) => DownloadError::Cancelled,
        }
    }
}

impl Writer {
    /// Waits until everything is written.
    fn end(&mut self) -> Result<OpenTarget, DownloadError> {
        self.pieces = None;
        let thread = self.thread.take().ok_or(DownloadError::Cancelled)?;
        match thread.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
