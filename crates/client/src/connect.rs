//! From a Space's name to a gRPC channel and to slots of its lane, both through its keeper.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use airlock_engine::Engine;
use airlock_engine::protocol::{MessageStream, Request, Response};
use airlock_lane::LaneMemory;
use airlock_model::SpaceName;
use hyper_util::rt::TokioIo;
use rustix::net::AddressFamily;
use tokio::net::{TcpStream, UnixStream};
use tokio_util::either::Either;
use tonic::transport::{Channel, Uri};
use tower::service_fn;

use crate::Error;
use crate::transfer::{ConnectError, Connection, LaneLease};

/// How long the Space's daemon may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Connects to guestd in the Space `name`.
pub(crate) async fn connect(engine: &Engine, name: &SpaceName) -> Result<Connection, Error> {
    let mut keeper = engine.keeper(name).await?;
    let (stream, token) = ask_for_connection(&mut keeper, name).await?;
    let socket = engine.home().space(name).keeper_socket();
    let channel = channel(stream, socket, name.clone()).await?;
    Ok(Connection::new(channel, &token)?)
}

/// A channel whose first connection is `stream`; when it breaks, the keeper is asked for another.
async fn channel(first: Stream, socket: PathBuf, name: SpaceName) -> Result<Channel, Error> {
    let mut first = Some(first);
    let connector = service_fn(move |_: Uri| {
        let ready = first.take();
        let socket = socket.clone();
        let name = name.clone();
        async move {
            let stream = match ready {
                Some(stream) => stream,
                None => again(&socket, &name).await.map_err(std::io::Error::other)?,
            };
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        }
    });
    let endpoint = Connection::endpoint().connect_timeout(CONNECT_TIMEOUT);
    Ok(endpoint
        .connect_with_connector(connector)
        .await
        .map_err(ConnectError::from)?)
}

async fn again(socket: &Path, name: &SpaceName) -> Result<Stream, Error> {
    let mut keeper = MessageStream::connect(socket)
        .await
        .map_err(|source| Error::Keeper {
            name: name.clone(),
            reason: source.to_string(),
        })?;
    Ok(ask_for_connection(&mut keeper, name).await?.0)
}

async fn ask_for_connection(
    keeper: &mut MessageStream,
    name: &SpaceName,
) -> Result<(Stream, String), Error> {
    match ask(keeper, &Request::Connect, name).await? {
        (Response::Connected { token }, Some(fd)) => {
            let stream = adopt(fd).map_err(|error| Error::Keeper {
                name: name.clone(),
                reason: error.to_string(),
            })?;
            Ok((stream, token))
        }
        (response, _) => Err(unexpected(name, &response)),
    }
}

/// A connection to guestd: through the loopback to a VM, through a unix socket to a container.
type Stream = Either<TcpStream, UnixStream>;

fn adopt(fd: OwnedFd) -> std::io::Result<Stream> {
    let domain = rustix::net::sockopt::socket_domain(&fd)?;
    if domain == AddressFamily::UNIX {
        let stream = std::os::unix::net::UnixStream::from(fd);
        stream.set_nonblocking(true)?;
        return Ok(Either::Right(UnixStream::from_std(stream)?));
    }
    let stream = std::net::TcpStream::from(fd);
    stream.set_nonblocking(true)?;
    Ok(Either::Left(TcpStream::from_std(stream)?))
}

/// Leases slots of the lane of `name`. The lease ends when the value is dropped.
pub(crate) async fn lease(engine: &Engine, name: &SpaceName) -> Result<LaneLease, Error> {
    let mut keeper = engine.keeper(name).await?;
    match ask(&mut keeper, &Request::Lease, name).await? {
        (
            Response::Leased {
                lease,
                slots,
                geometry,
            },
            Some(fd),
        ) => {
            let mut id = [0u8; 16];
            hex::decode_to_slice(&lease, &mut id).map_err(|error| Error::Keeper {
                name: name.clone(),
                reason: error.to_string(),
            })?;
            let memory = LaneMemory::from_fd(fd, geometry).map_err(|error| Error::Keeper {
                name: name.clone(),
                reason: error.to_string(),
            })?;
            Ok(LaneLease {
                id,
                slots,
                memory,
                hold: Box::new(keeper),
            })
        }
        (response, _) => Err(unexpected(name, &response)),
    }
}

async fn ask(
    keeper: &mut MessageStream,
    request: &Request,
    name: &SpaceName,
) -> Result<(Response, Option<OwnedFd>), Error> {
    let failed = |error: airlock_engine::protocol::TransportError| Error::Keeper {
        name: name.clone(),
        reason: error.to_string(),
    };
    keeper.send(request, None).await.map_err(failed)?;
    match keeper.receive::<Response>().await.map_err(failed)? {
        (Response::Refused { reason }, _) => Err(Error::Keeper {
            name: name.clone(),
            reason,
        }),
        answer => Ok(answer),
    }
}

fn unexpected(name: &SpaceName, response: &Response) -> Error {
    let what = match response {
        Response::Status(_) => "a status",
        Response::Connected { .. } => "a connection",
        Response::Leased { .. } => "a lease",
        Response::Stopped => "that it stopped",
        Response::Refused { .. } => "a refusal",
    };
    Error::Keeper {
        name: name.clone(),
        reason: format!("it answered another question, with {what}"),
    }
}
