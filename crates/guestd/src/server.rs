//! The gRPC server: built from a [`Config`], then served until told to stop.

mod access;
pub(crate) mod body;
mod router;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use airlock_lane::LaneDevice;
use airlock_wire::{CONNECTION_WINDOW_BYTES, MAX_FRAME_BYTES, STREAM_WINDOW_BYTES};
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::TcpIncoming;

pub use access::{Access, Token, TokenError};

use crate::lane_service::LaneService;
use crate::state::{Ending, Shared};

/// Streams that one connection may have open, as the contract has it.
const MAX_STREAMS: u32 = 4096;
/// How often an idle connection is asked whether it lives.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// How long calls under way may take to finish once the server shall stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// What a server is built from.
#[derive(Debug)]
pub struct Config {
    /// Where to listen.
    pub listen: Listen,
    /// Who may call.
    pub access: AccessConfig,
    /// What guestd is here.
    pub role: Role,
    /// A cgroup (version 2) folder in which commands get groups of their own.
    pub cgroup: Option<PathBuf>,
    /// The lane, where there is one.
    pub lane: Option<LaneDevice>,
}

/// Where a server listens.
#[derive(Debug)]
pub enum Listen {
    /// At an address of its own; port 0 lets the kernel pick.
    Address(SocketAddr),
    /// At a unix socket that was made, and is reachable, outside.
    Inherited(std::os::unix::net::UnixListener),
}

/// Who may call.
#[derive(Debug, Default)]
pub enum AccessConfig {
    /// Everyone; only on loopback.
    #[default]
    Open,
    /// The first token comes with `Init`; until then little is allowed.
    AwaitInit,
    /// Whoever has the token.
    Token(Token),
}

/// What guestd is where it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// A plain process on a machine that is not its own.
    #[default]
    Plain,
    /// The service of a virtual machine whose first process is guestd too.
    Machine,
    /// The service of a container whose first process is guestd too.
    Container,
}

/// Why no server could be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Anyone on the network could run commands.
    #[error("refusing to listen on {listen} without a token: only loopback may be open")]
    OpenToTheNetwork {
        /// The address asked for.
        listen: SocketAddr,
    },
    /// The address cannot be had.
    #[error("cannot listen on {listen}")]
    Listen {
        /// The address asked for.
        listen: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The inherited socket cannot be used.
    #[error("cannot listen on the inherited socket")]
    Inherited(#[source] io::Error),
}

/// A socket that listens.
#[derive(Debug)]
enum Listener {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener),
}

impl Listener {
    async fn new(listen: Listen, access: &AccessConfig) -> Result<Self, BuildError> {
        match listen {
            Listen::Address(listen) => {
                if matches!(access, AccessConfig::Open) && !listen.ip().is_loopback() {
                    return Err(BuildError::OpenToTheNetwork { listen });
                }
                let failed = |source| BuildError::Listen { listen, source };
                let listener = TcpListener::bind(listen).await.map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?;
                Ok(Self::Tcp(listener, address))
            }
            Listen::Inherited(listener) => {
                listener
                    .set_nonblocking(true)
                    .map_err(BuildError::Inherited)?;
                let listener = UnixListener::from_std(listener).map_err(BuildError::Inherited)?;
                Ok(Self::Unix(listener))
            }
        }
    }
}

/// A server that listens but does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    shared: Arc<Shared>,
    lane: LaneService,
}

/// Binds the address and makes the services.
pub async fn build(config: Config) -> Result<Server, BuildError> {
    let listener = Listener::new(config.listen, &config.access).await?;
    let access = match config.access {
        AccessConfig::Open => Access::open(),
        AccessConfig::AwaitInit => Access::await_init(),
        AccessConfig::Token(token) => Access::token(token),
    };
    let has_lane = config.lane.is_some();
    let shared = Arc::new(Shared::new(access, config.role, config.cgroup, has_lane));
    Ok(Server {
        listener,
        lane: LaneService::new(Arc::clone(&shared), config.lane),
        shared,
    })
}

impl Server {
    /// The address it listens on, unless that is an inherited socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.listener {
            Listener::Tcp(_, address) => Some(*address),
            Listener::Unix(_) => None,
        }
    }

    /// Answers calls until `shutdown` is cancelled or a `Shutdown` call comes; says which way
    /// the machine shall go then.
    pub async fn serve(
        self,
        shutdown: CancellationToken,
    ) -> Result<Ending, tonic::transport::Error> {
        let shared = self.shared;
        let router = router::Router::new(&shared, self.lane);
        let stop = CancellationToken::new();
        let builder = tonic::transport::Server::builder()
            .accept_http1(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(MAX_FRAME_BYTES)
            .max_concurrent_streams(MAX_STREAMS)
            .http2_keepalive_interval(Some(PING_INTERVAL));
        let stopped = stop.clone().cancelled_owned();
        let serving = async {
            match self.listener {
                Listener::Tcp(listener, _) => {
                    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                    builder
                        .serve_with_incoming_shutdown(router, incoming, stopped)
                        .await
                }
                Listener::Unix(listener) => {
                    let incoming = UnixListenerStream::new(listener);
                    builder
                        .serve_with_incoming_shutdown(router, incoming, stopped)
                        .await
                }
            }
        };
        tokio::pin!(serving);
        let ending = tokio::select! {
            result = &mut serving => return result.map(|()| Ending::Stop),
            () = shutdown.cancelled() => Ending::Stop,
            ending = shared.ending.asked() => ending,
        };
        stop.cancel();
        shared.processes.shut_down(shared.ending.grace()).await;
        // Streams of callers that do not hang up end with the process.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, serving).await;
        Ok(ending)
    }
}
