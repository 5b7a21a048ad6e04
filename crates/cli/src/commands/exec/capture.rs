//! `airlock exec --json`: the output held back, one object at the end.

use std::time::Instant;

use airlock::ExecEvent;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::outcome::{Outcome, Word};
use crate::args::exec::ExecArgs;
use crate::commands::Context;
use crate::exit::CommandError;
use crate::output;

/// How much of each stream is held back; the rest is dropped and the object says so.
const LIMIT_BYTES: usize = 64 * 1024 * 1024;

/// What `--json` prints. Stable.
#[derive(Debug, Serialize)]
struct Json {
    outcome: Word,
    exit_code: Option<u8>,
    signal: Option<u8>,
    timed_out: bool,
    message: Option<String>,
    ms: f64,
    stdout_base64: String,
    stderr_base64: String,
    stdout_truncated: bool,
    stderr_truncated: bool,
}

/// Runs the command and prints what became of it.
pub(super) async fn run(args: &ExecArgs, context: &Context) -> Result<(), CommandError> {
    let started = Instant::now();
    let mut stdout = Stream::new(LIMIT_BYTES);
    let mut stderr = Stream::new(LIMIT_BYTES);
    let sink = |event: &ExecEvent| {
        match event {
            ExecEvent::Stdout(bytes) => stdout.push(bytes),
            ExecEvent::Stderr(bytes) => stderr.push(bytes),
            ExecEvent::Started { .. } | ExecEvent::Ended(_) => {}
        }
        Ok(())
    };
    let result = super::run_to_end(args, context, sink).await;
    let outcome = Outcome::of(result);
    output::json(&Json {
        outcome: outcome.word,
        exit_code: outcome.exit_code,
        signal: outcome.signal,
        timed_out: outcome.word == Word::TimedOut,
        message: outcome.error.message().map(str::to_owned),
        ms: started.elapsed().as_secs_f64() * 1000.0,
        stdout_base64: STANDARD.encode(&stdout.bytes),
        stderr_base64: STANDARD.encode(&stderr.bytes),
        stdout_truncated: stdout.truncated,
        stderr_truncated: stderr.truncated,
    })?;
    outcome.finish(args, context)
}

/// The beginning of a stream.
#[derive(Debug)]
struct Stream {
    bytes: Vec<u8>,
    limit_bytes: usize,
    truncated: bool,
}

impl Stream {
    fn new(limit_bytes: usize) -> Self {
        Self {
            bytes: Vec::new(),
            limit_bytes,
            truncated: false,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = self.limit_bytes - self.bytes.len();
        let kept = &bytes[..bytes.len().min(room)];
        self.bytes.extend_from_slice(kept);
        self.truncated |= kept.len() < bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_dropped_and_said() {
        let mut stream = Stream::new(5);
        stream.push(b"abc");
        stream.push(b"de");
        assert!(!stream.truncated);
        stream.push(b"");
        assert!(!stream.truncated);
        stream.push(b"f");
        assert!(stream.truncated);
        assert_eq!(stream.bytes, b"abcde");
    }
}
