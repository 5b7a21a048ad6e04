//! A command's output as a stream of messages.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use airlock_wire::cua::v1::process_data;
use airlock_wire::cua::v1::process_event;
use airlock_wire::cua::v1::{KeepAlive, ProcessData, ProcessEnd, ProcessEvent, ProcessStart};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::command::{Command, Stop};
use super::output::{Event, Piece, Reader, Source};
use crate::convert::timestamp;

/// Messages between the ring and the connection. The ring is the buffer; this only decouples.
const QUEUE: usize = 2;
/// Keep-alives more often than this would only cost.
const SHORTEST_KEEPALIVE: Duration = Duration::from_millis(100);

/// The stream that a call returns.
pub(super) type Events<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// What the stream begins with, and how it behaves.
pub(super) struct Opening {
    pub(super) deduplicated: bool,
    pub(super) keepalive: Option<Duration>,
    /// Stop the command when the caller is gone before its end.
    pub(super) kill_on_disconnect: bool,
}

/// Streams the command from `reader`'s place on; `wrap` makes the call's own messages.
pub(super) fn follow<T: Send + 'static>(
    command: Arc<Command>,
    mut reader: Reader,
    opening: &Opening,
    wrap: fn(ProcessEvent) -> T,
) -> Events<T> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let start = start_event(&command, opening.deduplicated);
    let Opening {
        keepalive,
        kill_on_disconnect,
        ..
    } = *opening;
    tokio::spawn(async move {
        let ended = tokio::select! {
            ended = forward(start, &mut reader, keepalive, &sender, wrap) => ended,
            () = sender.closed() => false,
        };
        drop(reader);
        if !ended && kill_on_disconnect {
            command.stop(Stop::Asked);
        }
    });
    Box::pin(ReceiverStream::new(receiver))
}

/// Sends everything up to the end; says whether it got there.
async fn forward<T>(
    start: ProcessEvent,
    reader: &mut Reader,
    keepalive: Option<Duration>,
    sender: &mpsc::Sender<Result<T, Status>>,
    wrap: fn(ProcessEvent) -> T,
) -> bool {
    if sender.send(Ok(wrap(start))).await.is_err() {
        return false;
    }
    loop {
        let next = match keepalive {
            None => Some(reader.next().await),
            Some(interval) => {
                let interval = interval.max(SHORTEST_KEEPALIVE);
                tokio::time::timeout(interval, reader.next()).await.ok()
            }
        };
        let (message, is_last) = match next {
            None => (Ok(keepalive_event()), false),
            Some(Ok(Event::Data(piece))) => (Ok(data_event(piece)), false),
            Some(Ok(Event::End(end))) => (Ok(end_event(*end)), true),
            Some(Err(fault)) => (Err(Status::from(fault)), true),
        };
        let is_end = is_last && message.is_ok();
        if sender.send(message.map(wrap)).await.is_err() {
            return false;
        }
        if is_last {
            return is_end;
        }
    }
}

/// The two messages of a command that could not be run.
pub(super) fn never_ran<T: Send + 'static>(
    tag: String,
    request_id: String,
    end: ProcessEnd,
    wrap: fn(ProcessEvent) -> T,
) -> Events<T> {
    let start = ProcessStart {
        tag,
        request_id,
        started_at: end.ended_at,
        ..ProcessStart::default()
    };
    let start = ProcessEvent {
        event: Some(process_event::Event::Start(start)),
    };
    let events = [Ok(wrap(start)), Ok(wrap(end_event(end)))];
    Box::pin(tokio_stream::iter(events))
}

fn start_event(command: &Command, deduplicated: bool) -> ProcessEvent {
    let extent = command.output.extent();
    ProcessEvent {
        event: Some(process_event::Event::Start(ProcessStart {
            pid: command.pid,
            tag: command.options.tag.clone(),
            started_at: Some(timestamp(command.started)),
            scrollback_start_offset: extent.start_offset,
            output_end_offset: extent.end_offset,
            deduplicated,
            request_id: command.options.request_id.clone(),
        })),
    }
}

fn data_event(piece: Piece) -> ProcessEvent {
    ProcessEvent {
        event: Some(process_event::Event::Data(data(piece))),
    }
}

/// A piece as the wire has it.
pub(super) fn data(piece: Piece) -> ProcessData {
    let output = match piece.source {
        Source::Stdout => process_data::Output::Stdout(piece.bytes),
        Source::Stderr => process_data::Output::Stderr(piece.bytes),
        Source::Pty => process_data::Output::Pty(piece.bytes),
    };
    ProcessData {
        offset: piece.offset,
        output: Some(output),
    }
}

fn end_event(end: ProcessEnd) -> ProcessEvent {
    ProcessEvent {
        event: Some(process_event::Event::End(end)),
    }
}

fn keepalive_event() -> ProcessEvent {
    ProcessEvent {
        event: Some(process_event::Event::Keepalive(KeepAlive {})),
    }
}
