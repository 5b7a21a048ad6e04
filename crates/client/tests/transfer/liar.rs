//! A Space that follows a script of lies.

use std::pin::Pin;

use airlock::transfer::{Connection, LaneLease, LaneSession};
use airlock_lane::{LaneDevice, LaneMemory, proof};
use airlock_model::LaneGeometry;
use airlock_wire::lane_v1::get_response::Message as Get;
use airlock_wire::lane_v1::lane_service_server::{LaneService, LaneServiceServer};
use airlock_wire::lane_v1::put_ack::Result as AckResult;
use airlock_wire::lane_v1::put_response::Message as Put;
use airlock_wire::lane_v1::{
    AttachRequest, AttachResponse, GetRequest, GetResponse, MeasureRequest, MeasureResponse,
    PutAck, PutRequest, PutResponse, ReleaseRequest, ReleaseResponse, SlotProof,
};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

use crate::harness::Client;

/// What the Space sends, whatever it is asked.
#[derive(Clone, Default)]
pub(crate) struct Script {
    pub(crate) get: Vec<Get>,
    /// Sent again and again after `get`.
    pub(crate) get_for_ever: Option<Get>,
    pub(crate) put: Vec<Put>,
    /// Answers every part with this.
    pub(crate) ack: Option<AckResult>,
    /// Refuses every call with these words.
    pub(crate) fault: Option<String>,
    /// The stream ends after the script; otherwise the Space falls silent.
    pub(crate) ends: bool,
}

struct Liar {
    script: Script,
    lane: LaneDevice,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl LaneService for Liar {
    type PutStream = Answers<PutResponse>;
    type GetStream = Answers<GetResponse>;

    async fn attach(
        &self,
        request: Request<AttachRequest>,
    ) -> Result<Response<AttachResponse>, Status> {
        let prove = request.into_inner().prove.into_iter();
        let proofs = prove.map(|slot| proof::answer(&self.lane, slot).unwrap());
        Ok(Response::new(AttachResponse {
            proofs: proofs
                .map(|answer| SlotProof {
                    slot: answer.slot,
                    read_sha256: answer.read.as_bytes().to_vec().into(),
                    written_sha256: answer.written.as_bytes().to_vec().into(),
                })
                .collect(),
            geometry: Some(LaneGeometry::STANDARD.into()),
            build: String::new(),
        }))
    }

    async fn put(
        &self,
        request: Request<Streaming<PutRequest>>,
    ) -> Result<Response<Self::PutStream>, Status> {
        use airlock_wire::lane_v1::put_request::Message;
        let script = self.script.clone();
        if let Some(words) = script.fault {
            return Err(Status::failed_precondition(words));
        }
        let ack = script.ack.clone();
        let said = tokio_stream::iter(script.put.into_iter().map(put));
        let acks = request.into_inner().filter_map(move |request| {
            let (offset, length) = match request.ok()?.message? {
                Message::Window(window) => (window.offset, window.length),
                Message::Data(data) => (data.offset, u32::try_from(data.data.len()).unwrap()),
                Message::Open(_) | Message::Finish(_) => return None,
            };
            let result = Some(ack.clone()?);
            Some(put(Put::Ack(PutAck {
                offset,
                length,
                result,
            })))
        });
        Ok(Response::new(if script.ends {
            Box::pin(said)
        } else {
            Box::pin(said.chain(acks).chain(tokio_stream::pending()))
        }))
    }

    async fn get(
        &self,
        _: Request<Streaming<GetRequest>>,
    ) -> Result<Response<Self::GetStream>, Status> {
        let script = self.script.clone();
        if let Some(words) = script.fault {
            return Err(Status::failed_precondition(words));
        }
        let said = tokio_stream::iter(script.get.into_iter().map(get));
        Ok(Response::new(match script.get_for_ever {
            Some(message) => Box::pin(said.chain(tokio_stream::iter(std::iter::repeat_with(
                move || get(message.clone()),
            )))),
            None if script.ends => Box::pin(said),
            None => Box::pin(said.chain(tokio_stream::pending())),
        }))
    }

    async fn release(
        &self,
        _: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        Ok(Response::new(ReleaseResponse {}))
    }

    async fn measure(
        &self,
        _: Request<MeasureRequest>,
    ) -> Result<Response<MeasureResponse>, Status> {
        Err(Status::unimplemented("not here"))
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the item of the stream")]
fn put(message: Put) -> Result<PutResponse, Status> {
    Ok(PutResponse {
        message: Some(message),
    })
}

#[expect(clippy::unnecessary_wraps, reason = "the item of the stream")]
fn get(message: Get) -> Result<GetResponse, Status> {
    Ok(GetResponse {
        message: Some(message),
    })
}

/// A client of a Space that follows `script`; slots 4 to 8 are leased; the proof leaves
/// its blocks in the first and the last of them.
pub(crate) async fn client(script: Script) -> Client {
    let memory = LaneMemory::create(LaneGeometry::STANDARD).unwrap();
    let fd = std::os::fd::AsFd::as_fd(&memory)
        .try_clone_to_owned()
        .unwrap();
    let lane = LaneDevice::adopt(fd.into(), "memfd".as_ref()).unwrap();
    let (near, far) = tokio::io::duplex(1 << 20);
    let service = LaneServiceServer::new(Liar { script, lane });
    let incoming = tokio_stream::once(Ok::<_, std::io::Error>(far));
    let incoming = incoming.chain(tokio_stream::pending());
    tokio::spawn(async move {
        let server = tonic::transport::Server::builder();
        server.serve_with_incoming(service, incoming).await
    });
    let connection = Connection::over(near, "token").await.unwrap();
    let lease = LaneLease::new([1; 16], vec![4, 5, 6, 7, 8], memory, Box::new(()));
    let session = LaneSession::attach(&connection, lease).await.unwrap();
    Client {
        connection,
        lane: Ok(session),
    }
}
