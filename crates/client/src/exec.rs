//! Running commands in a Space.
//!
//! Output is never lost silently: its offsets are checked, and a stream that ends without the
//! command's end is an error.

mod end;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use airlock_wire::Fault;
use airlock_wire::cua::v1::process_service_client::ProcessServiceClient;
use airlock_wire::cua::v1::{ProcessConfig, StartProcessRequest};
use bytes::Bytes;
use tokio::io::AsyncRead;
use tokio::time::Instant;
use tonic::Status;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use crate::Error;
use crate::transfer::{AddToken, Connection};

pub use end::ExecEnd;
pub use stream::ExecStream;

/// How much output [`Exec::output`] collects unless told otherwise.
const DEFAULT_OUTPUT_LIMIT_BYTES: usize = 64 * 1024 * 1024;
/// A stream that is silent for this long sends a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// A Space that is silent for this long, signs of life included, does not answer any more.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long after a command's time-out its end may take to be told.
const TIMEOUT_GRACE: Duration = Duration::from_secs(10);

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

/// The answer of a call, or no answer: without a limit a Space that falls silent, or lies, would
/// hold its caller for ever.
async fn answered<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    match tokio::time::timeout(STALL_TIMEOUT, call).await {
        Ok(answer) => answer,
        Err(_elapsed) => {
            let seconds = STALL_TIMEOUT.as_secs();
            let message = format!("the Space has not answered for {seconds} s");
            Err(Status::unavailable(message))
        }
    }
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
    timeout: Option<Duration>,
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
            timeout: None,
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

    /// Kill the command and all its children after this time. A Space that does not say soon
    /// afterwards that it did so is not waited for.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
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
        let deadline = self
            .timeout
            .and_then(|timeout| Instant::now().checked_add(timeout + TIMEOUT_GRACE));
        let started = answered(client.start_process(request));
        let started = match deadline {
            None => Some(started.await),
            Some(deadline) => tokio::time::timeout_at(deadline, started).await.ok(),
        };
        let events = started
            .transpose()
            .map_err(|status| ExecError::Start {
                program: program.clone(),
                source: Fault::from_status(&status),
            })?
            .map(tonic::Response::into_inner);
        Ok(ExecStream::new(
            self.connection,
            program,
            events,
            self.stdin,
            deadline,
        ))
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
                let program = stream.program().to_owned();
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
            program: stream.program().to_owned(),
            source: None,
        }
        .into())
    }
}

type Client = ProcessServiceClient<InterceptedService<Channel, AddToken>>;

fn client(connection: &Connection) -> Client {
    ProcessServiceClient::new(connection.service())
        .max_decoding_message_size(airlock_wire::MAX_MESSAGE_BYTES)
}
