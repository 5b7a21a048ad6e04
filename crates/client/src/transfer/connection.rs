//! An authenticated connection to guestd.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use airlock_wire::lane_v1::lane_service_client::LaneServiceClient;
use airlock_wire::{
    AUTHORIZATION, CONNECTION_WINDOW_BYTES, MAX_FRAME_BYTES, MAX_MESSAGE_BYTES, STREAM_WINDOW_BYTES,
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

/// A connection to the guestd of one Space; a clone is the same connection.
#[derive(Clone)]
pub struct Connection {
    channel: Channel,
    token: AddToken,
}

/// Adds the Space's token to every call.
#[derive(Clone)]
pub struct AddToken(MetadataValue<Ascii>);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The token cannot stand in a header.
    #[error("the token of the Space has characters that no header can hold")]
    Token,
    /// The other end does not speak HTTP/2.
    #[error("the Space does not answer")]
    Transport(#[from] tonic::transport::Error),
}

impl Connection {
    /// A connection over `channel`, which should be made with [`endpoint`](Self::endpoint).
    pub fn new(channel: Channel, token: &str) -> Result<Self, ConnectError> {
        let mut value: MetadataValue<Ascii> = format!("Bearer {token}")
            .parse()
            .map_err(|_| ConnectError::Token)?;
        value.set_sensitive(true);
        Ok(Self {
            channel,
            token: AddToken(value),
        })
    }

    /// A connection over a stream that is connected to guestd already.
    pub async fn over<S>(stream: S, token: &str) -> Result<Self, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let once = Arc::new(Mutex::new(Some(stream)));
        let connector = tower::service_fn(move |_| {
            let stream = once.lock().unwrap_or_else(PoisonError::into_inner).take();
            async move {
                // There is no second stream to reconnect with.
                let gone = std::io::ErrorKind::NotConnected;
                stream
                    .map(TokioIo::new)
                    .ok_or_else(|| std::io::Error::from(gone))
            }
        });
        let channel = Self::endpoint().connect_with_connector(connector).await?;
        Self::new(channel, token)
    }

    /// The settings of a channel to guestd: large windows, so that no message waits for one.
    #[must_use]
    pub fn endpoint() -> Endpoint {
        Endpoint::from_static("http://space.airlock.internal")
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(MAX_FRAME_BYTES)
            .tcp_nodelay(true)
    }

    /// The channel with the token on every call, for the client of any service.
    #[must_use]
    pub fn service(&self) -> InterceptedService<Channel, AddToken> {
        InterceptedService::new(self.channel.clone(), self.token.clone())
    }

    pub(crate) fn lane(&self) -> LaneServiceClient<InterceptedService<Channel, AddToken>> {
        LaneServiceClient::new(self.service())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }
}

impl fmt::Debug for Connection {
    /// Leaves out the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl fmt::Debug for AddToken {
    /// Leaves out the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddToken").finish_non_exhaustive()
    }
}

impl Interceptor for AddToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert(AUTHORIZATION, self.0.clone());
        Ok(request)
    }
}
