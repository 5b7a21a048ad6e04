//! The keeper's own line to guestd: health, the end of leases, power off.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use airlock_wire::cua::v1::system_service_client::SystemServiceClient;
use airlock_wire::cua::v1::{HealthRequest, HealthStatus, ShutdownMode, ShutdownRequest};
use airlock_wire::lane_v1::ReleaseRequest;
use airlock_wire::lane_v1::lane_service_client::LaneServiceClient;
use airlock_wire::{AUTHORIZATION, Fault, FaultKind};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Mutex;
use tokio_util::either::Either;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};
use tower::service_fn;

use crate::protocol::short_path;
use crate::slots::LeaseId;

mod backlog;

/// How long one attempt to reach guestd may take before the next is made.
///
/// QEMU accepts the connection before the Space does, so an attempt that comes too early hangs
/// and has to be given up.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(500);

/// Pause between attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Where guestd listens, seen from the host.
#[derive(Debug, Clone)]
pub(crate) enum Door {
    /// A port of the host's loopback that QEMU forwards.
    Port(SocketAddr),
    /// A unix socket in the Space's private folder.
    Socket(PathBuf),
}

impl Door {
    async fn open(&self) -> std::io::Result<Stream> {
        match self {
            Self::Port(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Ok(Either::Left(stream))
            }
            Self::Socket(path) => {
                let (_folder, short) = short_path(path)?;
                Ok(Either::Right(UnixStream::connect(short).await?))
            }
        }
    }
}

/// A connection through a door.
type Stream = Either<TcpStream, UnixStream>;

fn into_fd(stream: Stream) -> std::io::Result<OwnedFd> {
    Ok(match stream {
        Either::Left(stream) => stream.into_std()?.into(),
        Either::Right(stream) => stream.into_std()?.into(),
    })
}

/// Where guestd listens, and how to be let in.
#[derive(Debug, Clone)]
pub(crate) struct Guest {
    door: Door,
    token: String,
    bearer: MetadataValue<Ascii>,
    channel: Channel,
    /// Held by the last connection that was made, until QEMU has accepted it.
    turn: Arc<Mutex<()>>,
}

impl Guest {
    /// A line to guestd behind `door`; nothing is connected yet.
    pub(crate) fn new(door: Door, token: String) -> Result<Self, Fault> {
        let invalid = || Fault::new(FaultKind::Internal, "the token is not a header value");
        let bearer = format!("Bearer {token}").parse().map_err(|_| invalid())?;
        let connector = {
            let door = door.clone();
            service_fn(move |_: Uri| {
                let door = door.clone();
                async move { Ok::<_, std::io::Error>(TokioIo::new(door.open().await?)) }
            })
        };
        // The connector knows the way; the address only fills the requests' headers.
        let channel = Endpoint::from_static("http://guestd")
            .connect_timeout(ATTEMPT_TIMEOUT)
            .connect_with_connector_lazy(connector);
        Ok(Self {
            door,
            token,
            bearer,
            channel,
            turn: Arc::default(),
        })
    }

    /// The bearer token of this boot.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// A fresh connection to guestd, to be handed to a client.
    pub(crate) async fn connect(&self) -> std::io::Result<OwnedFd> {
        let Door::Port(address) = self.door else {
            return into_fd(self.door.open().await?);
        };
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let stream = self.door.open().await?;
        // The one who asked need not wait; the next one does. It ends by itself soon.
        tokio::spawn(async move {
            backlog::accepted(address).await;
            drop(turn);
        });
        into_fd(stream)
    }

    /// Completes with the first healthy answer. Never gives up; the caller has the deadline.
    pub(crate) async fn healthy(&self) {
        loop {
            let attempt = async {
                // A connection of its own: one that hangs must not hold up the next attempt.
                let fresh = Self::new(self.door.clone(), self.token.clone())?;
                let mut client = SystemServiceClient::new(fresh.channel.clone());
                let answer = client.health(fresh.request(HealthRequest {})).await?;
                Ok::<_, Status>(answer.into_inner().status() == HealthStatus::Serving)
            };
            if let Ok(Ok(true)) = tokio::time::timeout(ATTEMPT_TIMEOUT, attempt).await {
                return;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Ends `lease` in the Space. Completes when no transfer touches its slots any more, however
    /// long guestd is away: a restarted guestd knows no lease and agrees at once.
    pub(crate) async fn release(&self, lease: LeaseId) {
        let mut client = LaneServiceClient::new(self.channel.clone());
        loop {
            let request = ReleaseRequest {
                lease: lease.to_vec().into(),
            };
            match client.release(self.request(request)).await {
                Ok(_) => return,
                Err(status) => {
                    tracing::debug!(%status, "guestd did not release a lease, trying again");
                    tokio::time::sleep(RETRY_PAUSE * 5).await;
                }
            }
        }
    }

    /// Asks the Space to power itself off.
    pub(crate) async fn power_off(&self) -> Result<(), Fault> {
        let mut client = SystemServiceClient::new(self.channel.clone());
        let mut request = ShutdownRequest {
            reason: "stopped".to_owned(),
            ..Default::default()
        };
        request.set_mode(ShutdownMode::GuestPoweroff);
        client
            .shutdown(self.request(request))
            .await
            .map_err(|s| Fault::from_status(&s))?;
        Ok(())
    }

    fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        request
            .metadata_mut()
            .insert(AUTHORIZATION, self.bearer.clone());
        request
    }
}
