//! Standard input of a command: fed in order, each sequence once.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use airlock_wire::{Fault, FaultKind};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::pipe::End;

/// Writers that one command tells apart.
const MAX_WRITERS: usize = 1024;
/// The character that ends input from a terminal, `^D`.
const END_OF_INPUT: &[u8] = b"\x04";

/// Where input goes.
#[derive(Debug)]
enum Sink {
    /// There never was one, or it was closed.
    None,
    Pipe(End),
    /// Shared with the side that reads the terminal.
    Terminal(Arc<End>),
}

/// Standard input of one command.
#[derive(Debug)]
pub(super) struct Input {
    state: Mutex<State>,
    /// The command is over.
    over: CancellationToken,
}

#[derive(Debug)]
struct State {
    sink: Sink,
    applied: HashMap<String, u64>,
}

/// What became of one piece of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) sequence: u64,
    pub(super) duplicate: bool,
}

impl Input {
    pub(super) fn none(over: CancellationToken) -> Arc<Self> {
        Self::new(Sink::None, over)
    }

    pub(super) fn pipe(end: End, over: CancellationToken) -> Arc<Self> {
        Self::new(Sink::Pipe(end), over)
    }

    pub(super) fn terminal(end: Arc<End>, over: CancellationToken) -> Arc<Self> {
        Self::new(Sink::Terminal(end), over)
    }

    fn new(sink: Sink, over: CancellationToken) -> Arc<Self> {
        let state = Mutex::new(State {
            sink,
            applied: HashMap::new(),
        });
        Arc::new(Self { state, over })
    }

    /// Writes `data`, unless `sequence` of this writer was written before.
    ///
    /// A sequence of zero is not counted. Once begun, a piece is written to its end even when the
    /// caller hangs up, since a repetition could not tell how much of it had arrived.
    pub(super) async fn send(
        self: &Arc<Self>,
        writer: String,
        sequence: u64,
        data: Vec<u8>,
    ) -> Result<Applied, Fault> {
        let this = Arc::clone(self);
        let sending = tokio::spawn(async move { this.apply(writer, sequence, &data).await });
        sending
            .await
            .map_err(|_| Fault::new(FaultKind::Internal, "the input was dropped"))?
    }

    async fn apply(&self, writer: String, sequence: u64, data: &[u8]) -> Result<Applied, Fault> {
        // Waiters get the lock in the order in which they came.
        let mut state = self.state.lock().await;
        let State { sink, applied } = &mut *state;
        let last = applied.get(&writer).copied().unwrap_or(0);
        if sequence != 0 {
            if sequence <= last {
                return Ok(Applied {
                    sequence: last,
                    duplicate: true,
                });
            }
            if sequence > last + 1 {
                let message = format!("input {sequence} came, but {} is next", last + 1);
                let fault = Fault::new(FaultKind::SequenceGap, message);
                return Err(fault.with("expected_sequence", last + 1));
            }
            if applied.len() >= MAX_WRITERS && !applied.contains_key(&writer) {
                let message = format!("a command has at most {MAX_WRITERS} writers");
                return Err(Fault::new(FaultKind::LimitExceeded, message));
            }
        }
        let end = match sink {
            Sink::None => return Err(closed()),
            Sink::Pipe(end) => &*end,
            Sink::Terminal(end) => &**end,
        };
        let written = tokio::select! {
            written = end.write_all(data) => written,
            () = self.over.cancelled() => Err(io::ErrorKind::BrokenPipe.into()),
        };
        match written {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                *sink = Sink::None;
                return Err(closed());
            }
            Err(error) => return Err(Fault::from_io("standard input", &error)),
        }
        if sequence != 0 {
            applied.insert(writer, sequence);
        }
        Ok(Applied {
            sequence: last.max(sequence),
            duplicate: false,
        })
    }

    /// Ends the input after everything that was sent before. Repeating it changes nothing.
    pub(super) async fn close(&self) {
        let mut state = self.state.lock().await;
        match &state.sink {
            Sink::None => {}
            Sink::Pipe(_) => state.sink = Sink::None,
            Sink::Terminal(end) => {
                tokio::select! {
                    // A terminal that is gone has nobody to tell.
                    _ = end.write_all(END_OF_INPUT) => {}
                    () = self.over.cancelled() => {}
                }
            }
        }
    }
}

impl Input {
    /// Gives the descriptor up, once nobody can read from it any more.
    pub(super) async fn release(&self) {
        self.state.lock().await.sink = Sink::None;
    }
}

fn closed() -> Fault {
    Fault::new(
        FaultKind::InvalidArgument,
        "the command takes no standard input any more",
    )
}
