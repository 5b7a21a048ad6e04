//! Running commands in a Space.
//!
//! Output is never lost silently: its offsets are checked, and a stream that ends without the
//! command's end is an error.

use std::collections::HashMap;
use std::time::Duration;

use airlock_wire::Fault;
use airlock_wire::cua::v1::process_data::Output as WireOutput;
use airlock_wire::cua::v1::process_event::Event as WireEvent;
use airlock_wire::cua::v1::process_input::Input;
use airlock_wire::cua::v1::process_selector::Selector;
use airlock_wire::cua::v1::process_service_client::ProcessServiceClient;
use airlock_wire::cua::v1::{
    CloseStdinRequest, ProcessConfig, ProcessEnd, ProcessInput, ProcessSelector, SendInputRequest,
    Signal, SignalProcessRequest, StartProcessRequest, StartProcessResponse,
};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;
use tonic::Streaming;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use crate::Error;
use crate::transfer::{AddToken, Connection};

/// The largest piece of standard input in one message, in bytes.
const INPUT_CHUNK_BYTES: usize = 256 * 1024;
/// How much output [`Exec::output`] collects unless told otherwise.
const DEFAULT_OUTPUT_LIMIT_BYTES: usize = 64 * 1024 * 1024;
/// A stream that is silent for this long sends a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Why a command did not run to its end, or its output is not whole.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// guestd refused to start the command, or the connection broke.
    #[error("cannot run {program}")]
    Start {
        /// The command.
        program: String,
        /// Why.
        source: Fault,
    },
    /// The connection broke before the command ended.
    #[error("lost the connection to {program} while it ran")]
    Broken {
        /// The command.
        program: String,
        /// Why, if the other side said.
        source: Option<Fault>,
    },
    /// Bytes of the output are missing.
    #[error("output of {program} was lost: expected byte {expected}, got byte {found}")]
    OutputLost {
        /// The command.
        program: String,
        /// Offset of the next byte.
        expected: u64,
        /// Offset of the byte that came.
        found: u64,
    },
    /// The output is longer than the caller allowed. What came until then is kept.
    #[error("{program} printed more than the {limit_bytes} bytes allowed")]
    OutputLimit {
        /// The command.
        program: String,
        /// The limit.
        limit_bytes: usize,
        /// The first part of the output.
        partial: Box<(Vec<u8>, Vec<u8>)>,
    },
}

/// What happens while a command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEvent {
    /// It runs.
    Started {
        /// Its pid in the Space.
        pid: u32,
    },
    /// It wrote to standard output.
    Stdout(Bytes),
    /// It wrote to standard error.
    Stderr(Bytes),
    /// It is over. Always the last event.
    Ended(ExecEnd),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEnd {
    /// By itself.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// By a signal.
    Signaled {
        /// The signal's number.
        signal: i32,
        /// The signal's name, `SIGKILL` for one.
        name: String,
    },
    /// It took longer than allowed and was killed with all its children.
    TimedOut,
    /// It never ran: no such program, or not one that can be run.
    NotRun {
        /// 127 when there is no such program, 126 when it cannot be run.
        code: i32,
        /// Why.
        reason: String,
    },
}

impl ExecEnd {
    /// Whether it ended by itself with exit code 0.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Exited { code: 0 })
    }

    /// The exit code as a shell would give it: 124 timed out, 126 cannot run, 127 not found,
    /// 128 + N killed by signal N.
    pub fn shell_code(&self) -> i32 {
        match self {
            Self::Exited { code } | Self::NotRun { code, .. } => *code,
            Self::Signaled { signal, .. } => 128 + signal,
            Self::TimedOut => 124,
        }
    }

    fn from_wire(end: ProcessEnd) -> Self {
        if end.timed_out {
            return Self::TimedOut;
        }
        if !end.error.is_empty() {
            return Self::NotRun {
                code: end.exit_code.unwrap_or(126),
                reason: end.error,
            };
        }
        let signal = if end.signal_number != 0 {
            end.signal_number
        } else {
            end.signal
        };
        if signal != 0 && end.exit_code.is_none() {
            let name = if end.signal_name.is_empty() {
                format!("signal {signal}")
            } else {
                end.signal_name
            };
            return Self::Signaled { signal, name };
        }
        Self::Exited {
            code: end.exit_code.unwrap_or_default(),
        }
    }
}

/// A command that ran, with all that it wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// How it ended.
    pub end: ExecEnd,
}

/// A command to run. Made by [`crate::Space::exec`].
#[must_use = "a command runs only when `stream` or `output` is called"]
pub struct Exec {
    connection: Connection,
    config: ProcessConfig,
    stdin: Option<Box<dyn AsyncRead + Send + Unpin>>,
    detach: bool,
    output_limit_bytes: usize,
}

impl Exec {
    pub(crate) fn new(connection: Connection, program: String) -> Self {
        let config = ProcessConfig {
            command: program,
            ..Default::default()
        };
        Self {
            connection,
            config,
            stdin: None,
            detach: false,
            output_limit_bytes: DEFAULT_OUTPUT_LIMIT_BYTES,
        }
    }

    /// One more argument.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.config.args.push(arg.into());
        self
    }

    /// More arguments.
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.config.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// One more environment variable.
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.env.insert(key.into(), value.into());
        self
    }

    /// More environment variables.
    pub fn envs(mut self, variables: HashMap<String, String>) -> Self {
        self.config.env.extend(variables);
        self
    }

    /// The folder to run in. Default: the user's home folder.
    pub fn cwd(mut self, folder: impl Into<String>) -> Self {
        self.config.cwd = folder.into();
        self
    }

    /// The user to run as, by name or number. Default: the Space's user.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.config.user = user.into();
        self
    }

    /// Kill the command and all its children after this time.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.config.timeout = prost_types::Duration::try_from(timeout).ok();
        self
    }

    /// What the command reads on standard input. Default: nothing.
    pub fn stdin(mut self, reader: impl AsyncRead + Send + Unpin + 'static) -> Self {
        self.stdin = Some(Box::new(reader));
        self
    }

    /// Let the command live on when the connection ends. Default: it is killed then.
    pub fn detach(mut self) -> Self {
        self.detach = true;
        self
    }

    /// The most that [`Exec::output`] collects, in bytes of both streams together.
    pub fn output_limit(mut self, bytes: usize) -> Self {
        self.output_limit_bytes = bytes;
        self
    }

    /// Starts the command. Its events come one by one, as fast as they are taken.
    pub async fn stream(self) -> Result<ExecStream, Error> {
        let program = self.config.command.clone();
        let mut client = client(&self.connection);
        let request = StartProcessRequest {
            config: Some(self.config),
            stdin: self.stdin.is_some(),
            keepalive_interval: prost_types::Duration::try_from(KEEPALIVE).ok(),
            kill_on_disconnect: !self.detach,
            ..Default::default()
        };
        let events = client
            .start_process(request)
            .await
            .map_err(|status| ExecError::Start {
                program: program.clone(),
                source: Fault::from_status(&status),
            })?;
        Ok(ExecStream {
            connection: self.connection,
            program,
            events: events.into_inner(),
            next_offset: 0,
            pid: None,
            stdin: self.stdin,
            feeder: None,
            ended: false,
        })
    }

    /// Runs the command to its end and collects what it writes.
    pub async fn output(self) -> Result<ExecOutput, Error> {
        let limit_bytes = self.output_limit_bytes;
        let mut stream = self.stream().await?;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        while let Some(event) = stream.next().await? {
            let (sink, bytes) = match event {
                ExecEvent::Started { .. } => continue,
                ExecEvent::Stdout(bytes) => (&mut stdout, bytes),
                ExecEvent::Stderr(bytes) => (&mut stderr, bytes),
                ExecEvent::Ended(end) => {
                    return Ok(ExecOutput {
                        stdout,
                        stderr,
                        end,
                    });
                }
            };
            sink.extend_from_slice(&bytes);
            if stdout.len() + stderr.len() > limit_bytes {
                let program = stream.program.clone();
                let partial = Box::new((stdout, stderr));
                return Err(ExecError::OutputLimit {
                    program,
                    limit_bytes,
                    partial,
                }
                .into());
            }
        }
        Err(ExecError::Broken {
            program: stream.program.clone(),
            source: None,
        }
        .into())
    }
}

/// A command that runs. Dropping it kills the command, unless it was detached.
pub struct ExecStream {
    connection: Connection,
    program: String,
    events: Streaming<StartProcessResponse>,
    next_offset: u64,
    pid: Option<u32>,
    stdin: Option<Box<dyn AsyncRead + Send + Unpin>>,
    feeder: Option<JoinHandle<()>>,
    ended: bool,
}

impl ExecStream {
    /// The next event; `None` after [`ExecEvent::Ended`].
    pub async fn next(&mut self) -> Result<Option<ExecEvent>, Error> {
        if self.ended {
            return Ok(None);
        }
        loop {
            let message = self.events.message().await.map_err(|status| {
                let source = Fault::from_status(&status);
                let program = self.program.clone();
                // Before it started, the status says why it could not; after, it was cut off.
                match self.pid {
                    None => ExecError::Start { program, source },
                    Some(_) => ExecError::Broken {
                        program,
                        source: Some(source),
                    },
                }
            })?;
            let broken = || ExecError::Broken {
                program: self.program.clone(),
                source: None,
            };
            let event = message
                .ok_or_else(broken)?
                .event
                .and_then(|event| event.event);
            match event {
                // Another version's event, or a sign of life.
                None | Some(WireEvent::Keepalive(_)) => {}
                Some(WireEvent::Start(start)) => {
                    self.pid = Some(start.pid);
                    self.next_offset = start.output_end_offset;
                    self.feed(start.pid);
                    return Ok(Some(ExecEvent::Started { pid: start.pid }));
                }
                Some(WireEvent::Data(data)) => {
                    if data.offset != self.next_offset {
                        return Err(ExecError::OutputLost {
                            program: self.program.clone(),
                            expected: self.next_offset,
                            found: data.offset,
                        }
                        .into());
                    }
                    let event = match data.output {
                        Some(WireOutput::Stdout(bytes) | WireOutput::Pty(bytes)) => {
                            ExecEvent::Stdout(bytes)
                        }
                        Some(WireOutput::Stderr(bytes)) => ExecEvent::Stderr(bytes),
                        None => continue,
                    };
                    let (ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes)) = &event else {
                        continue;
                    };
                    self.next_offset += bytes.len() as u64;
                    return Ok(Some(event));
                }
                Some(WireEvent::End(end)) => {
                    self.ended = true;
                    return Ok(Some(ExecEvent::Ended(ExecEnd::from_wire(end))));
                }
            }
        }
    }

    /// Sends a signal, by its number on Linux, to the command and all its children.
    pub async fn signal(&self, number: i32) -> Result<(), Error> {
        let Some(pid) = self.pid else { return Ok(()) };
        let request = SignalProcessRequest {
            process: Some(selector(pid)),
            // The enumeration uses Linux's numbers; guestd refuses those that it lacks.
            signal: Signal::try_from(number).map_or(number, Into::into),
            process_group: true,
        };
        let mut client = client(&self.connection);
        client
            .signal_process(request)
            .await
            .map_err(|status| ExecError::Broken {
                program: self.program.clone(),
                source: Some(Fault::from_status(&status)),
            })?;
        Ok(())
    }

    /// Starts to feed standard input, once the command has a pid.
    fn feed(&mut self, pid: u32) {
        let Some(reader) = self.stdin.take() else {
            return;
        };
        let connection = self.connection.clone();
        self.feeder = Some(tokio::spawn(async move {
            // A command that ends, or closes its input, before it has read all of it is no
            // error: its end tells the caller what there is to know.
            if let Err(error) = feed(&connection, pid, reader).await {
                tracing::debug!(%error, pid, "standard input was not taken to its end");
            }
        }));
    }
}

impl Drop for ExecStream {
    fn drop(&mut self) {
        if let Some(feeder) = &self.feeder {
            feeder.abort();
        }
    }
}

async fn feed(
    connection: &Connection,
    pid: u32,
    mut reader: Box<dyn AsyncRead + Send + Unpin>,
) -> Result<(), Fault> {
    let mut client = client(connection);
    let mut writer_id = [0u8; 16];
    getrandom::fill(&mut writer_id)
        .map_err(|error| Fault::new(airlock_wire::FaultKind::Internal, error.to_string()))?;
    let writer_id = hex::encode(writer_id);
    let mut buffer = vec![0; INPUT_CHUNK_BYTES];
    for sequence in 1.. {
        // An input that cannot be read is an input that ended.
        let length = reader.read(&mut buffer).await.unwrap_or_default();
        if length == 0 {
            break;
        }
        let input = Input::Stdin(buffer[..length].to_vec());
        let request = SendInputRequest {
            process: Some(selector(pid)),
            input: Some(ProcessInput { input: Some(input) }),
            sequence,
            writer_id: writer_id.clone(),
        };
        client
            .send_input(request)
            .await
            .map_err(|status| Fault::from_status(&status))?;
    }
    let request = CloseStdinRequest {
        process: Some(selector(pid)),
    };
    client
        .close_stdin(request)
        .await
        .map_err(|status| Fault::from_status(&status))?;
    Ok(())
}

type Client = ProcessServiceClient<InterceptedService<Channel, AddToken>>;

fn client(connection: &Connection) -> Client {
    ProcessServiceClient::new(connection.service())
        .max_decoding_message_size(airlock_wire::MAX_MESSAGE_BYTES)
}

fn selector(pid: u32) -> ProcessSelector {
    ProcessSelector {
        selector: Some(Selector::Pid(pid)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_map_to_what_a_shell_gives() {
        let end = |end: ProcessEnd| ExecEnd::from_wire(end);
        assert_eq!(
            end(ProcessEnd {
                exit_code: Some(3),
                ..Default::default()
            })
            .shell_code(),
            3
        );
        assert_eq!(
            end(ProcessEnd {
                signal_number: 11,
                ..Default::default()
            })
            .shell_code(),
            139
        );
        let killed = ProcessEnd {
            signal: Signal::Kill.into(),
            ..Default::default()
        };
        assert_eq!(end(killed).shell_code(), 137);
        assert_eq!(
            end(ProcessEnd {
                timed_out: true,
                ..Default::default()
            })
            .shell_code(),
            124
        );
        let missing = ProcessEnd {
            exit_code: Some(127),
            error: "no such".into(),
            ..Default::default()
        };
        assert_eq!(end(missing).shell_code(), 127);
        assert!(
            end(ProcessEnd {
                exit_code: Some(0),
                ..Default::default()
            })
            .is_success()
        );
    }
}
