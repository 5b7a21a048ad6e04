//! `cua.env.v1.ProcessService`: commands, their output and input.

mod command;
mod end;
mod group;
mod input;
mod launch;
mod output;
mod pipe;
mod stream;
mod table;

use std::sync::Arc;
use std::time::Duration;

use airlock_wire::cua::v1::process_input;
use airlock_wire::cua::v1::process_service_server::ProcessService;
use airlock_wire::cua::v1::stream_input_request;
use airlock_wire::cua::v1::{
    AdvanceEpochRequest, AdvanceEpochResponse, CloseStdinRequest, CloseStdinResponse,
    ConnectProcessRequest, ConnectProcessResponse, ExecRecord, ExecState, GetExecRecordRequest,
    GetExecRecordResponse, ListProcessesRequest, ListProcessesResponse, ProcessEnd, ProcessInput,
    PtySize, ResizePtyRequest, ResizePtyResponse, SendInputRequest, SendInputResponse,
    SignalProcessRequest, SignalProcessResponse, StartProcessRequest, StartProcessResponse,
    StreamInputRequest, StreamInputResponse,
};
use airlock_wire::{Fault, FaultKind};
use rustix::process::Signal;
use rustix::termios::Winsize;
use tonic::{Request, Response, Status, Streaming};

use self::command::{Command, RECORD_TAIL_BYTES, StartOptions, Stop};
use self::launch::{Launch, StartFailure};
use self::stream::{Events, Opening};
use crate::convert::{from_duration, now, timestamp};
use crate::state::Shared;

pub(crate) use self::launch::check_env;
pub use self::table::Processes;

/// Output kept for whoever attaches later, in bytes, unless a command asks for another size.
pub const DEFAULT_SCROLLBACK_BYTES: usize = 8 * 1024 * 1024;
/// The most that a command may ask for.
const MAX_SCROLLBACK_BYTES: u64 = 512 * 1024 * 1024;

/// The service.
#[derive(Debug)]
pub struct Commands {
    shared: Arc<Shared>,
}

impl Commands {
    /// The service over the shared state.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    async fn start(
        &self,
        request: StartProcessRequest,
    ) -> Result<Events<StartProcessResponse>, Fault> {
        let processes = &self.shared.processes;
        let keepalive = keepalive(request.keepalive_interval.as_ref())?;
        let kill_on_disconnect = request.kill_on_disconnect;
        let opening = |deduplicated| Opening {
            deduplicated,
            keepalive,
            kill_on_disconnect,
        };
        let _only_one = if request.request_id.is_empty() {
            None
        } else {
            let lock = processes.idempotent_start.lock().await;
            if let Some(command) = processes.find_request(&request.request_id) {
                let reader = command.output.attach(0);
                return Ok(stream::follow(
                    command,
                    reader,
                    &opening(true),
                    start_response,
                ));
            }
            Some(lock)
        };
        let config = request
            .config
            .ok_or_else(|| Fault::new(FaultKind::InvalidArgument, "no command was given"))?;
        let timeout = config.timeout.as_ref().map(from_duration).transpose()?;
        let timeout = timeout.filter(|timeout| !timeout.is_zero());
        let options = StartOptions {
            tag: request.tag,
            stdin: request.stdin,
            pty: request.pty.as_ref().map(|pty| winsize(pty.size.as_ref())),
            scrollback_bytes: scrollback(request.scrollback_bytes)?,
            request_id: request.request_id,
            epoch: processes.check_epoch(request.epoch)?,
            timeout,
            contained: timeout.is_some() || kill_on_disconnect,
        };
        let term = request.pty.as_ref().map(|pty| pty.term.as_str());
        let defaults = self.shared.defaults().clone();
        let launch = Launch::new(&config, &defaults, term)?;
        let labels = (options.tag.clone(), options.request_id.clone());
        match Command::start(config, launch, options, processes.cgroup()).await {
            Ok(command) => {
                processes.add(Arc::clone(&command));
                let reader = command.output.attach(0);
                Ok(stream::follow(
                    command,
                    reader,
                    &opening(false),
                    start_response,
                ))
            }
            Err(StartFailure::Fault(fault)) => Err(fault),
            Err(StartFailure::End { exit_code, error }) => {
                let end = ProcessEnd {
                    exit_code: Some(exit_code),
                    error,
                    ended_at: Some(timestamp(now())),
                    ..ProcessEnd::default()
                };
                Ok(stream::never_ran(labels.0, labels.1, end, start_response))
            }
        }
    }

    fn connect(
        &self,
        request: ConnectProcessRequest,
    ) -> Result<Events<ConnectProcessResponse>, Fault> {
        let keepalive = keepalive(request.keepalive_interval.as_ref())?;
        let command = self.shared.processes.find(request.process)?;
        let end_offset = command.output.extent().end_offset;
        let from = match request.replay_from_offset {
            Some(offset) if offset > end_offset => {
                let message = format!("the output has {end_offset} bytes so far, not {offset}");
                let fault = Fault::new(FaultKind::OffsetMismatch, message);
                return Err(fault.with("expected_offset", end_offset));
            }
            Some(offset) => offset,
            None => end_offset.saturating_sub(request.replay_bytes),
        };
        let reader = command.output.attach(from);
        let opening = Opening {
            deduplicated: false,
            keepalive,
            kill_on_disconnect: false,
        };
        Ok(stream::follow(command, reader, &opening, |event| {
            ConnectProcessResponse { event: Some(event) }
        }))
    }

    async fn stream_input(
        &self,
        mut requests: Streaming<StreamInputRequest>,
    ) -> Result<StreamInputResponse, Status> {
        let mut command: Option<Arc<Command>> = None;
        let mut bytes_written = 0;
        while let Some(request) = requests.message().await? {
            match (request.message, &command) {
                (Some(stream_input_request::Message::Process(selector)), None) => {
                    command = Some(self.shared.processes.find(Some(selector))?);
                }
                (Some(stream_input_request::Message::Input(input)), Some(command)) => {
                    let data = input_bytes(Some(input))?;
                    bytes_written += data.len() as u64;
                    command.input.send(String::new(), 0, data).await?;
                }
                (Some(stream_input_request::Message::Keepalive(_)) | None, _) => {}
                (Some(stream_input_request::Message::Process(_)), Some(_)) => {
                    return Err(invalid("the process was named twice").into());
                }
                (Some(stream_input_request::Message::Input(_)), None) => {
                    return Err(invalid("the first message must name the process").into());
                }
            }
        }
        Ok(StreamInputResponse { bytes_written })
    }

    fn record(&self, request_id: &str) -> Result<GetExecRecordResponse, Fault> {
        let processes = &self.shared.processes;
        let command = processes
            .find_request(request_id)
            .filter(|_| !request_id.is_empty());
        let Some(command) = command else {
            let message = format!("no command was started as {request_id:?}");
            return Err(Fault::new(FaultKind::ProcessNotFound, message));
        };
        let end = command.output.end();
        let state = match &end {
            None => ExecState::Running,
            Some(end) if end.lost => ExecState::Lost,
            Some(_) => ExecState::Exited,
        };
        let tail = command.output.tail(RECORD_TAIL_BYTES);
        let record = ExecRecord {
            request_id: request_id.to_owned(),
            state: state.into(),
            epoch: command.options.epoch,
            pid: command.pid,
            started_at: Some(timestamp(command.started)),
            output_bytes: command.output.extent().end_offset,
            output_sha256: match &end {
                Some(_) => command.output.sha256().unwrap_or_default(),
                None => String::new(),
            },
            end,
            tail: tail.into_iter().map(stream::data).collect(),
        };
        Ok(GetExecRecordResponse {
            record: Some(record),
            epoch: processes.epoch(),
        })
    }

    fn signal(&self, request: &SignalProcessRequest) -> Result<SignalProcessResponse, Fault> {
        let signal = Signal::from_named_raw(request.signal)
            .ok_or_else(|| invalid(format!("there is no signal {}", request.signal)))?;
        let command = self.shared.processes.find(request.process.clone())?;
        if command.signal(signal, request.process_group) {
            return Ok(SignalProcessResponse {});
        }
        let message = format!("command {} has ended", command.pid);
        Err(Fault::new(FaultKind::ProcessNotFound, message))
    }
}

#[tonic::async_trait]
impl ProcessService for Commands {
    type StartProcessStream = Events<StartProcessResponse>;
    type ConnectProcessStream = Events<ConnectProcessResponse>;

    async fn start_process(
        &self,
        request: Request<StartProcessRequest>,
    ) -> Result<Response<Self::StartProcessStream>, Status> {
        Ok(Response::new(self.start(request.into_inner()).await?))
    }

    async fn connect_process(
        &self,
        request: Request<ConnectProcessRequest>,
    ) -> Result<Response<Self::ConnectProcessStream>, Status> {
        Ok(Response::new(self.connect(request.into_inner())?))
    }

    async fn list_processes(
        &self,
        request: Request<ListProcessesRequest>,
    ) -> Result<Response<ListProcessesResponse>, Status> {
        let request = request.into_inner();
        let commands = self.shared.processes.all().into_iter();
        let processes = commands
            .filter(|command| request.include_exited || command.is_running())
            .filter(|command| command.options.tag.starts_with(&request.tag_prefix))
            .map(|command| command.info())
            .collect();
        Ok(Response::new(ListProcessesResponse { processes }))
    }

    async fn send_input(
        &self,
        request: Request<SendInputRequest>,
    ) -> Result<Response<SendInputResponse>, Status> {
        let request = request.into_inner();
        let data = input_bytes(request.input)?;
        let command = self.shared.processes.find(request.process)?;
        let applied = command
            .input
            .send(request.writer_id, request.sequence, data)
            .await?;
        Ok(Response::new(SendInputResponse {
            applied_sequence: applied.sequence,
            duplicate: applied.duplicate,
        }))
    }

    async fn stream_input(
        &self,
        request: Request<Streaming<StreamInputRequest>>,
    ) -> Result<Response<StreamInputResponse>, Status> {
        Ok(Response::new(
            Self::stream_input(self, request.into_inner()).await?,
        ))
    }

    async fn signal_process(
        &self,
        request: Request<SignalProcessRequest>,
    ) -> Result<Response<SignalProcessResponse>, Status> {
        Ok(Response::new(self.signal(request.get_ref())?))
    }

    async fn close_stdin(
        &self,
        request: Request<CloseStdinRequest>,
    ) -> Result<Response<CloseStdinResponse>, Status> {
        let command = self.shared.processes.find(request.into_inner().process)?;
        command.input.close().await;
        Ok(Response::new(CloseStdinResponse {}))
    }

    async fn resize_pty(
        &self,
        request: Request<ResizePtyRequest>,
    ) -> Result<Response<ResizePtyResponse>, Status> {
        let request = request.into_inner();
        let command = self.shared.processes.find(request.process)?;
        command.resize(winsize(request.size.as_ref()))?;
        Ok(Response::new(ResizePtyResponse {}))
    }

    async fn get_exec_record(
        &self,
        request: Request<GetExecRecordRequest>,
    ) -> Result<Response<GetExecRecordResponse>, Status> {
        Ok(Response::new(self.record(&request.get_ref().request_id)?))
    }

    async fn advance_epoch(
        &self,
        request: Request<AdvanceEpochRequest>,
    ) -> Result<Response<AdvanceEpochResponse>, Status> {
        let epoch = request.get_ref().epoch;
        let earlier = self.shared.processes.advance(epoch)?;
        for command in &earlier {
            command.stop(Stop::Asked);
        }
        for command in &earlier {
            command.ended().await;
        }
        Ok(Response::new(AdvanceEpochResponse {
            epoch,
            killed: earlier.len() as u32,
        }))
    }
}

fn start_response(event: airlock_wire::cua::v1::ProcessEvent) -> StartProcessResponse {
    StartProcessResponse { event: Some(event) }
}

fn keepalive(wire: Option<&prost_types::Duration>) -> Result<Option<Duration>, Fault> {
    let interval = wire.map(from_duration).transpose()?;
    Ok(interval.filter(|interval| !interval.is_zero()))
}

fn scrollback(wanted: u64) -> Result<usize, Fault> {
    match wanted {
        0 => Ok(DEFAULT_SCROLLBACK_BYTES),
        wanted if wanted > MAX_SCROLLBACK_BYTES => {
            let message = format!(
                "{wanted} bytes of scrollback, at most {MAX_SCROLLBACK_BYTES} are possible"
            );
            Err(Fault::new(FaultKind::LimitExceeded, message))
        }
        wanted => Ok(wanted as usize),
    }
}

fn winsize(size: Option<&PtySize>) -> Winsize {
    let clamp = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
    match size {
        Some(size) => Winsize {
            ws_row: clamp(size.rows),
            ws_col: clamp(size.cols),
            ws_xpixel: clamp(size.pixel_width),
            ws_ypixel: clamp(size.pixel_height),
        },
        None => Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        },
    }
}

fn input_bytes(input: Option<ProcessInput>) -> Result<Vec<u8>, Fault> {
    match input.and_then(|input| input.input) {
        Some(process_input::Input::Stdin(bytes) | process_input::Input::Pty(bytes)) => Ok(bytes),
        None => Err(invalid("no input was given")),
    }
}

fn invalid(message: impl Into<String>) -> Fault {
    Fault::new(FaultKind::InvalidArgument, message)
}
