//! A server for one test, and calls to it in short form.

use std::path::Path;

use airlock_guestd::server::{self, AccessConfig, Config, Listen};
use airlock_wire::Fault;
use airlock_wire::cua::v1::filesystem_service_client::FilesystemServiceClient;
use airlock_wire::cua::v1::process_event::Event;
use airlock_wire::cua::v1::process_service_client::ProcessServiceClient;
use airlock_wire::cua::v1::system_service_client::SystemServiceClient;
use airlock_wire::cua::v1::{
    EntryInfo, ProcessConfig, ProcessEnd, ReadFileRequest, StartProcessRequest,
    StartProcessResponse, WriteFileHeader, WriteFileRequest, WriteMode, process_data,
    read_file_response, write_file_request,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Streaming;
use tonic::transport::Channel;

/// A server that ends with the test.
pub(crate) struct Space {
    pub(crate) processes: ProcessServiceClient<Channel>,
    pub(crate) files: FilesystemServiceClient<Channel>,
    pub(crate) system: SystemServiceClient<Channel>,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) address: std::net::SocketAddr,
    _stop: DropGuard,
}

/// What a command printed and how it ended.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) end: ProcessEnd,
}

impl Outcome {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }
}

impl Space {
    pub(crate) async fn open() -> Self {
        Self::with(AccessConfig::Open).await
    }

    pub(crate) async fn with(access: AccessConfig) -> Self {
        let config = Config {
            listen: Listen::Address("127.0.0.1:0".parse().unwrap()),
            access,
            role: server::Role::Plain,
            cgroup: None,
            lane: None,
        };
        let server = server::build(config).await.unwrap();
        let address = server.address().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(server.serve(stop.clone()));
        let channel = channel(address);
        Self {
            processes: ProcessServiceClient::new(channel.clone()),
            files: FilesystemServiceClient::new(channel.clone()),
            system: SystemServiceClient::new(channel),
            dir: tempfile::tempdir().unwrap(),
            address,
            _stop: stop.drop_guard(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) async fn start(
        &self,
        request: StartProcessRequest,
    ) -> Result<Streaming<StartProcessResponse>, Fault> {
        let response = self.processes.clone().start_process(request).await;
        response
            .map(tonic::Response::into_inner)
            .map_err(|status| Fault::from_status(&status))
    }

    pub(crate) async fn run(&self, request: StartProcessRequest) -> Result<Outcome, Fault> {
        outcome(self.start(request).await?).await
    }

    pub(crate) async fn sh(&self, script: &str) -> Outcome {
        self.run(sh(script)).await.unwrap()
    }

    pub(crate) async fn write(
        &self,
        header: WriteFileHeader,
        pieces: Vec<Vec<u8>>,
    ) -> Result<(EntryInfo, String), Fault> {
        let header = write_file_request::Message::Header(header);
        let data = pieces
            .into_iter()
            .map(|piece| write_file_request::Message::Data(piece.into()));
        let messages: Vec<_> = std::iter::once(header)
            .chain(data)
            .map(|message| WriteFileRequest {
                message: Some(message),
            })
            .collect();
        let response = self
            .files
            .clone()
            .write_file(tokio_stream::iter(messages))
            .await;
        let response = response
            .map_err(|status| Fault::from_status(&status))?
            .into_inner();
        Ok((response.entry.unwrap(), response.sha256))
    }

    pub(crate) async fn read(&self, request: ReadFileRequest) -> Result<ReadBack, Fault> {
        let fault = |status: tonic::Status| Fault::from_status(&status);
        let mut stream = self
            .files
            .clone()
            .read_file(request)
            .await
            .map_err(fault)?
            .into_inner();
        let mut back = ReadBack::default();
        while let Some(response) = stream.message().await.map_err(fault)? {
            match response.message.unwrap() {
                read_file_response::Message::Entry(entry) => back.entry = Some(entry),
                read_file_response::Message::Chunk(chunk) => {
                    back.first_offset.get_or_insert(chunk.offset);
                    back.chunks.push(chunk.data.len());
                    back.data.extend_from_slice(&chunk.data);
                }
                read_file_response::Message::End(end) => {
                    assert_eq!(end.bytes_read, back.data.len() as u64);
                    back.sha256 = end.sha256;
                    return Ok(back);
                }
            }
        }
        panic!("the stream ended without an end");
    }
}

#[derive(Debug, Default)]
pub(crate) struct ReadBack {
    pub(crate) entry: Option<EntryInfo>,
    pub(crate) data: Vec<u8>,
    pub(crate) chunks: Vec<usize>,
    pub(crate) first_offset: Option<u64>,
    pub(crate) sha256: String,
}

pub(crate) fn channel(address: std::net::SocketAddr) -> Channel {
    tonic::transport::Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .initial_stream_window_size(airlock_wire::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(airlock_wire::CONNECTION_WINDOW_BYTES)
        .connect_lazy()
}

/// Collects a stream; checks that offsets leave no gap.
pub(crate) async fn outcome(mut stream: Streaming<StartProcessResponse>) -> Result<Outcome, Fault> {
    let mut outcome = Outcome::default();
    let mut next_offset = 0;
    let fault = |status: tonic::Status| Fault::from_status(&status);
    while let Some(response) = stream.message().await.map_err(fault)? {
        match response.event.unwrap().event.unwrap() {
            Event::Start(_) | Event::Keepalive(_) => {}
            Event::Data(data) => {
                assert_eq!(data.offset, next_offset);
                let (sink, bytes) = match data.output.unwrap() {
                    process_data::Output::Stdout(bytes) | process_data::Output::Pty(bytes) => {
                        (&mut outcome.stdout, bytes)
                    }
                    process_data::Output::Stderr(bytes) => (&mut outcome.stderr, bytes),
                };
                sink.extend_from_slice(&bytes);
                next_offset += bytes.len() as u64;
            }
            Event::End(end) => {
                outcome.end = end;
                return Ok(outcome);
            }
        }
    }
    panic!("the stream ended without an end");
}

pub(crate) fn command(words: &[&str]) -> StartProcessRequest {
    StartProcessRequest {
        config: Some(ProcessConfig {
            command: words[0].to_owned(),
            args: words[1..].iter().map(|word| (*word).to_owned()).collect(),
            ..ProcessConfig::default()
        }),
        ..StartProcessRequest::default()
    }
}

pub(crate) fn sh(script: &str) -> StartProcessRequest {
    command(&["/bin/sh", "-c", script])
}

pub(crate) fn header(path: &str) -> WriteFileHeader {
    WriteFileHeader {
        path: path.to_owned(),
        mode: WriteMode::Overwrite.into(),
        ..WriteFileHeader::default()
    }
}

/// Bytes that do not repeat soon, the same ones every time.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
