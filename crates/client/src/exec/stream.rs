//! A command that runs: its events, its standard input, its signals.

use airlock_wire::Fault;
use airlock_wire::cua::v1::process_data::Output as WireOutput;
use airlock_wire::cua::v1::process_event::Event as WireEvent;
use airlock_wire::cua::v1::process_input::Input;
use airlock_wire::cua::v1::process_selector::Selector;
use airlock_wire::cua::v1::{
    CloseStdinRequest, ProcessInput, ProcessSelector, SendInputRequest, Signal,
    SignalProcessRequest, StartProcessResponse,
};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::Streaming;

use super::{ExecEnd, ExecError, ExecEvent, client};
use crate::Error;
use crate::transfer::Connection;

/// The largest piece of standard input in one message, in bytes.
const INPUT_CHUNK_BYTES: usize = 256 * 1024;

/// A command that runs. Dropping it kills the command, unless it was detached.
pub struct ExecStream {
    connection: Connection,
    program: String,
    /// Nothing when the Space did not answer in time.
    events: Option<Streaming<StartProcessResponse>>,
    next_offset: u64,
    pid: Option<u32>,
    stdin: Option<Box<dyn AsyncRead + Send + Unpin>>,
    feeder: Option<JoinHandle<()>>,
    /// When its end is no longer waited for.
    deadline: Option<Instant>,
    ended: bool,
}

impl ExecStream {
    pub(super) fn new(
        connection: Connection,
        program: String,
        events: Option<Streaming<StartProcessResponse>>,
        stdin: Option<Box<dyn AsyncRead + Send + Unpin>>,
        deadline: Option<Instant>,
    ) -> Self {
        Self {
            connection,
            program,
            events,
            next_offset: 0,
            pid: None,
            stdin,
            feeder: None,
            deadline,
            ended: false,
        }
    }

    /// The command.
    pub(super) fn program(&self) -> &str {
        &self.program
    }

    /// The end of a command whose time is over and of which the Space says nothing.
    fn given_up(&mut self) -> ExecEvent {
        let program = &self.program;
        tracing::warn!("the Space does not say that it ended {program}");
        self.ended = true;
        ExecEvent::Ended(ExecEnd::TimedOut)
    }

    /// The next event; `None` after [`ExecEvent::Ended`].
    pub async fn next(&mut self) -> Result<Option<ExecEvent>, Error> {
        if self.ended {
            return Ok(None);
        }
        loop {
            let Some(events) = &mut self.events else {
                return Ok(Some(self.given_up()));
            };
            let answer = super::answered(events.message());
            let answer = match self.deadline {
                None => answer.await,
                Some(deadline) => match tokio::time::timeout_at(deadline, answer).await {
                    Ok(answer) => answer,
                    Err(_elapsed) => return Ok(Some(self.given_up())),
                },
            };
            let message = answer.map_err(|status| {
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

fn selector(pid: u32) -> ProcessSelector {
    ProcessSelector {
        selector: Some(Selector::Pid(pid)),
    }
}
