//! A client of QEMU's machine protocol over a connected stream socket.
//!
//! QEMU runs what a hostile guest makes it run, so its words are not trusted: a line that is too
//! long, not JSON, or of no known shape ends the connection with an error that says so, and every
//! caller that waits learns it.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{broadcast, oneshot};
use tokio::task::JoinHandle;

use crate::discover::Version;
use line::{LineError, read_line};

mod line;
#[cfg(test)]
mod tests;
mod typed;

pub use typed::RunState;

/// The longest line that is read, in bytes. The longest answer we ask for has a few kilobytes.
pub const MAX_LINE_BYTES: usize = 1024 * 1024;
/// How long a command may take unless the caller says otherwise.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// Events that wait for a slow reader; older ones are dropped then.
const EVENTS_KEPT: usize = 256;

/// Why a command has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum QmpError {
    /// Writing to or reading from the socket failed.
    #[error("the QMP connection failed")]
    Io(#[source] Arc<io::Error>),
    /// QEMU closed the connection, most often because it ended.
    #[error("QEMU closed the QMP connection")]
    Closed,
    /// QEMU sent a line longer than [`MAX_LINE_BYTES`].
    #[error("QEMU sent a QMP line of more than {MAX_LINE_BYTES} bytes")]
    LineTooLong,
    /// QEMU sent a line that is no QMP.
    #[error("QEMU sent a line that is no QMP: {line:?}")]
    Malformed {
        /// Its start.
        line: String,
    },
    /// No answer came in time.
    #[error("QEMU did not answer {command} within {timeout:?}")]
    Timeout {
        /// The command.
        command: String,
        /// How long it had.
        timeout: Duration,
    },
    /// QEMU refused the command.
    #[error("QEMU refused {command}: {description} ({class})")]
    Refused {
        /// The command.
        command: String,
        /// QEMU's error class.
        class: String,
        /// QEMU's words.
        description: String,
    },
    /// The answer has not the shape that the command promises.
    #[error("QEMU answered {command} with {answer:?}, which is not understood")]
    Unexpected {
        /// The command.
        command: String,
        /// The start of the answer.
        answer: String,
    },
}

/// Something that QEMU reports unasked.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its name, such as `SHUTDOWN`.
    pub name: String,
    /// What belongs to it; `Null` when nothing does.
    pub data: Value,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Message {
    Greeting {
        #[serde(rename = "QMP")]
        qmp: Greeting,
    },
    Event {
        event: String,
        #[serde(default)]
        data: Value,
    },
    Return {
        #[serde(rename = "return")]
        value: Value,
        id: Option<u64>,
    },
    Error {
        error: Refusal,
        id: Option<u64>,
    },
}

#[derive(Deserialize)]
struct Greeting {
    version: GreetingVersion,
}

#[derive(Deserialize)]
struct GreetingVersion {
    qemu: Version,
}

#[derive(Deserialize)]
struct Refusal {
    class: String,
    desc: String,
}

type Answer = Result<Value, Refusal>;

/// What the reader and the callers share.
struct State {
    next_id: u64,
    waiting: HashMap<u64, oneshot::Sender<Answer>>,
    /// `None` once the connection is over, which ends every receiver.
    events: Option<broadcast::Sender<Event>>,
    /// Set once the connection is over.
    ended: Option<QmpError>,
}

struct Shared {
    state: Mutex<State>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, why: QmpError) {
        let mut state = self.state();
        state.ended.get_or_insert(why);
        // Dropping the senders wakes every caller.
        state.waiting.clear();
        state.events = None;
    }
}

/// A connection on which commands can be given. Shared by reference; dropping it ends it.
pub struct Qmp {
    shared: Arc<Shared>,
    writer: tokio::sync::Mutex<OwnedWriteHalf>,
    reader: JoinHandle<()>,
    version: Version,
}

impl Drop for Qmp {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Qmp {
    /// Waits for QEMU's greeting on `socket` and enters command mode.
    pub async fn connect(socket: UnixStream) -> Result<Self, QmpError> {
        Self::connect_within(socket, COMMAND_TIMEOUT).await
    }

    /// Like [`Qmp::connect`] with its own deadline for greeting and negotiation, each.
    pub async fn connect_within(socket: UnixStream, timeout: Duration) -> Result<Self, QmpError> {
        let (reader, writer) = socket.into_split();
        let mut reader = BufReader::new(reader);
        let greeting = tokio::time::timeout(timeout, read_message(&mut reader))
            .await
            .map_err(|_elapsed| QmpError::Timeout {
                command: "greeting".into(),
                timeout,
            })??;
        let Message::Greeting { qmp } = greeting else {
            return Err(QmpError::Malformed {
                line: "something before the greeting".into(),
            });
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                next_id: 1,
                waiting: HashMap::new(),
                events: Some(broadcast::Sender::new(EVENTS_KEPT)),
                ended: None,
            }),
        });
        let reader = tokio::spawn(read_all(reader, Arc::clone(&shared)));
        let qmp = Self {
            shared,
            writer: tokio::sync::Mutex::new(writer),
            reader,
            version: qmp.version.qemu,
        };
        qmp.execute_within("qmp_capabilities", None, timeout)
            .await?;
        Ok(qmp)
    }

    /// The release of the QEMU at the other end.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Events from now on. A reader that falls behind by 256 is told so and goes on; all
    /// readers end when the connection does, and [`Qmp::ended`] says why.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        match &self.shared.state().events {
            Some(events) => events.subscribe(),
            None => broadcast::Sender::new(1).subscribe(),
        }
    }

    /// Why the connection is over, once it is.
    pub fn ended(&self) -> Option<QmpError> {
        self.shared.state().ended.clone()
    }

    /// Gives a command and waits for its result, at most [`COMMAND_TIMEOUT`].
    pub async fn execute(
        &self,
        command: &str,
        arguments: Option<Value>,
    ) -> Result<Value, QmpError> {
        self.execute_within(command, arguments, COMMAND_TIMEOUT)
            .await
    }

    /// Gives a command and waits for its result, at most `timeout`.
    pub async fn execute_within(
        &self,
        command: &str,
        arguments: Option<Value>,
        timeout: Duration,
    ) -> Result<Value, QmpError> {
        let (sender, receiver) = oneshot::channel();
        let id = self.register(sender)?;
        let _forget = Forget {
            shared: &self.shared,
            id,
        };
        let exchange = async {
            self.send(command, arguments, id).await?;
            // An error means that the reader let go of us, and it says why first.
            receiver
                .await
                .map_err(|_gone| self.ended().unwrap_or(QmpError::Closed))
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(answer) => answer?.map_err(|refusal| QmpError::Refused {
                command: command.to_owned(),
                class: refusal.class,
                description: refusal.desc,
            }),
            Err(_elapsed) => Err(QmpError::Timeout {
                command: command.to_owned(),
                timeout,
            }),
        }
    }

    fn register(&self, sender: oneshot::Sender<Answer>) -> Result<u64, QmpError> {
        let mut state = self.shared.state();
        if let Some(why) = &state.ended {
            return Err(why.clone());
        }
        let id = state.next_id;
        state.next_id += 1;
        state.waiting.insert(id, sender);
        Ok(id)
    }

    async fn send(&self, command: &str, arguments: Option<Value>, id: u64) -> Result<(), QmpError> {
        let mut message = json!({ "execute": command, "id": id });
        if let Some(arguments) = arguments {
            message["arguments"] = arguments;
        }
        let mut line = message.to_string();
        line.push('\n');
        let mut writer = self.writer.lock().await;
        let mut guard = EndUnlessDone {
            shared: &self.shared,
            done: false,
        };
        let written = writer.write_all(line.as_bytes()).await;
        guard.done = true;
        written.map_err(|error| {
            let why = write_error(error);
            self.shared.end(why.clone());
            why
        })
    }
}

/// A peer that is gone shows as a broken pipe; callers need not tell that from a plain end.
fn write_error(error: io::Error) -> QmpError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => QmpError::Closed,
        _kind => QmpError::Io(Arc::new(error)),
    }
}

/// Ends the connection when a write was cancelled half-way: the next line would be glued to it.
struct EndUnlessDone<'a> {
    shared: &'a Shared,
    done: bool,
}

impl Drop for EndUnlessDone<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.shared.end(QmpError::Closed);
        }
    }
}

/// Forgets a command whose caller went away.
struct Forget<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.shared.state().waiting.remove(&self.id);
    }
}

async fn read_message(reader: &mut BufReader<OwnedReadHalf>) -> Result<Message, QmpError> {
    let line = read_line(reader, MAX_LINE_BYTES)
        .await
        .map_err(|error| match error {
            LineError::End => QmpError::Closed,
            LineError::TooLong => QmpError::LineTooLong,
            LineError::Io(error) => write_error(error),
        })?;
    serde_json::from_slice(&line).map_err(|_error| QmpError::Malformed {
        line: excerpt(&line),
    })
}

/// The start of what the peer said, short enough for a message.
fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(120)]).into_owned()
}

async fn read_all(mut reader: BufReader<OwnedReadHalf>, shared: Arc<Shared>) {
    loop {
        let message = match read_message(&mut reader).await {
            Ok(message) => message,
            Err(why) => return shared.end(why),
        };
        match message {
            Message::Event { event, data } => {
                // No receiver is no error.
                if let Some(events) = &shared.state().events {
                    let _unheard = events.send(Event { name: event, data });
                }
            }
            Message::Return { value, id } => answer(&shared, id, Ok(value)),
            Message::Error { error, id } => answer(&shared, id, Err(error)),
            Message::Greeting { .. } => {
                return shared.end(QmpError::Malformed {
                    line: "a second greeting".into(),
                });
            }
        }
    }
}

/// An answer without a waiting caller belongs to one that gave up: not an error.
fn answer(shared: &Shared, id: Option<u64>, answer: Answer) {
    let Some(id) = id else { return };
    let waiting = shared.state().waiting.remove(&id);
    if let Some(sender) = waiting {
        let _gave_up = sender.send(answer);
    }
}
