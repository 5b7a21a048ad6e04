//! `airlock.lane.v1.LaneService`: verified transfer of one file at a time through the lane.
//!
//! The protocol, its states and its failures are described in `docs/lane.md`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use airlock_lane::{LaneDevice, proof};
use airlock_model::size::LEAF_BYTES;
use airlock_wire::lane_v1::lane_service_server;
use airlock_wire::lane_v1::{
    AttachRequest, AttachResponse, GetRequest, GetResponse, MeasureRequest, MeasureResponse,
    PutRequest, PutResponse, ReleaseRequest, ReleaseResponse, SlotProof,
};
use airlock_wire::{Fault, FaultKind, MAX_MESSAGE_BYTES};
use tokio::sync::mpsc;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

use self::leases::Leases;
use self::sink::DiskIo;
use self::workers::Workers;
use crate::paths;
use crate::state::Shared;
use crate::system::BUILD_ID;

mod get;
mod leases;
mod measure;
mod put;
mod sink;
mod source;
mod workers;

/// Slots that one Attach proves at most; the first and the last are what a client asks for.
const MAX_PROOFS: usize = 8;
/// Responses that wait for the connection, at most. A transfer has eight windows in flight.
const RESPONSES: usize = 16;

/// The service; a clone is the same service.
#[derive(Clone)]
pub struct LaneService {
    shared: Arc<LaneShared>,
}

/// What all transfers share.
pub(crate) struct LaneShared {
    space: Arc<Shared>,
    device: Option<Arc<LaneDevice>>,
    leases: Leases,
    workers: Workers,
}

impl LaneShared {
    fn lane(&self) -> Result<Arc<LaneDevice>, Fault> {
        self.device.clone().ok_or_else(|| {
            Fault::new(FaultKind::FeatureUnsupported, "this Space has no lane")
                .with("feature", "lane")
        })
    }
}

/// A path of the wire, and who owns what is new there.
struct Location {
    path: PathBuf,
    /// Owner and group. Absent: guestd's own.
    new_owner: Option<(u32, u32)>,
}

impl LaneShared {
    fn disk_io(&self) -> DiskIo {
        DiskIo::of(self.space.role)
    }

    fn locate(&self, wire: &[u8]) -> Result<Location, Fault> {
        // Looking the user up reads two files, which an absolute path of guestd's own user needs not.
        if wire.starts_with(b"/") && self.space.defaults().user.is_empty() {
            return Ok(Location {
                path: paths::resolve(wire, Path::new("/"))?,
                new_owner: None,
            });
        }
        let user = self.space.default_user()?;
        Ok(Location {
            path: paths::resolve(wire, &user.home)?,
            new_owner: self.space.new_owner(&user),
        })
    }
}

impl fmt::Debug for LaneService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneService")
            .field("device", &self.shared.device)
            .finish_non_exhaustive()
    }
}

impl LaneService {
    /// The service of one Space; without a lane everything goes over the network.
    pub fn new(space: Arc<Shared>, lane: Option<LaneDevice>) -> Self {
        let role = space.role;
        Self {
            shared: Arc::new(LaneShared {
                space,
                device: lane.map(Arc::new),
                leases: Leases::default(),
                workers: Workers::new(DiskIo::of(role)),
            }),
        }
    }

    /// The service as a tonic server takes it, with the limits of the wire.
    #[must_use]
    pub fn into_server(self) -> lane_service_server::LaneServiceServer<Self> {
        lane_service_server::LaneServiceServer::new(self)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }
}

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Answers with the first response in hand, so that it leaves together with the headers and an
/// error before it needs no stream at all.
async fn respond<I: Send + 'static, T: Send + 'static>(
    mut responses: mpsc::Receiver<I>,
    message: impl Fn(I) -> Result<T, Status> + Send + 'static,
) -> Result<Response<Responses<T>>, Status> {
    let first = match responses.recv().await {
        Some(first) => message(first)?,
        None => return Err(Status::internal("the transfer ended without an answer")),
    };
    let rest = tokio_stream::wrappers::ReceiverStream::new(responses).map(message);
    let all = tokio_stream::once(Ok(first)).chain(rest);
    Ok(Response::new(Box::pin(all)))
}

#[tonic::async_trait]
impl lane_service_server::LaneService for LaneService {
    type PutStream = Responses<PutResponse>;
    type GetStream = Responses<GetResponse>;

    async fn attach(
        &self,
        request: Request<AttachRequest>,
    ) -> Result<Response<AttachResponse>, Status> {
        let request = request.into_inner();
        let device = self.shared.lane()?;
        self.shared.workers.warm();
        if request.prove.len() > MAX_PROOFS {
            let message = format!("at most {MAX_PROOFS} slots are proven at a time");
            return Err(Fault::new(FaultKind::LimitExceeded, message).into());
        }
        self.shared.leases.attach(&request.lease, &request.slots)?;
        let lease = self.shared.leases.begin_use(&request.lease)?;
        let mut proofs = Vec::new();
        for slot in request.prove {
            lease.check(slot)?;
            // Two blocks of 4 KiB: shorter than a hand-over to another thread.
            let answer = proof::answer(&device, slot)
                .map_err(|error| Fault::new(FaultKind::Internal, with_source(&error)))?;
            proofs.push(SlotProof {
                slot,
                read_sha256: answer.read.as_bytes().to_vec().into(),
                written_sha256: answer.written.as_bytes().to_vec().into(),
            });
        }
        Ok(Response::new(AttachResponse {
            proofs,
            geometry: Some(device.geometry().into()),
            build: BUILD_ID.to_owned(),
        }))
    }

    async fn put(
        &self,
        request: Request<Streaming<PutRequest>>,
    ) -> Result<Response<Self::PutStream>, Status> {
        let (responses, answers) = mpsc::channel(RESPONSES);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(put::run(shared, request.into_inner(), responses));
        respond(answers, |message| message).await
    }

    async fn get(
        &self,
        request: Request<Streaming<GetRequest>>,
    ) -> Result<Response<Self::GetStream>, Status> {
        let (responses, answers) = mpsc::channel(RESPONSES);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(get::run(shared, request.into_inner(), responses));
        respond(answers, |outgoing: get::Outgoing| outgoing.message).await
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        let lease = request.into_inner().lease;
        self.shared.leases.release(&lease).await?;
        Ok(Response::new(ReleaseResponse {}))
    }

    async fn measure(
        &self,
        request: Request<MeasureRequest>,
    ) -> Result<Response<MeasureResponse>, Status> {
        let request = request.into_inner();
        let threads = self.shared.workers.threads();
        let measured = tokio::task::spawn_blocking(move || measure::run(request, threads))
            .await
            .map_err(|error| Fault::new(FaultKind::Internal, error.to_string()))?;
        Ok(Response::new(measured?))
    }
}

/// The fault for work that no thread is there to do.
fn no_thread(error: &std::io::Error) -> Fault {
    Fault::new(
        FaultKind::Internal,
        format!("no thread for the lane: {error}"),
    )
}

/// An error with its cause, as it travels in one line.
fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Refuses a client that cuts files into other leaves: no digest of it could match.
fn same_leaves(leaf_bytes: u32) -> Result<(), Fault> {
    if leaf_bytes as usize == LEAF_BYTES {
        return Ok(());
    }
    let message = format!(
        "this Space's daemon is of another version: it cuts files into leaves of {LEAF_BYTES} \
         bytes, the client into {leaf_bytes}; stop and start the Space to give it the newer one"
    );
    Err(Fault::new(FaultKind::FeatureUnsupported, message).with("feature", "airlock.lane.v1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_leaves_are_refused_with_what_to_do() {
        same_leaves(LEAF_BYTES as u32).unwrap();
        // 0 is what a client from before this field sends.
        for other in [0, 1, 128 * 1024] {
            let fault = same_leaves(other).unwrap_err();
            assert_eq!(fault.kind, FaultKind::FeatureUnsupported);
            assert!(
                fault.message.contains("stop and start the Space"),
                "{fault}"
            );
        }
    }
}
