//! Request bodies that tell a whole message stream from one that broke off.
//!
//! gRPC code ends a request stream quietly when the caller resets it, just as if the caller had
//! finished. For a file that would publish a part as the whole, so the body itself remembers
//! whether it broke, and whoever publishes asks it first.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Request;
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

/// Whether the request's body broke off. Found in the extensions of a watched request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Integrity(Arc<AtomicBool>);

impl Integrity {
    /// Whether the caller gave up before the end.
    pub(crate) fn is_broken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Has the request's body watched from now on.
pub(super) fn watch(request: Request<Body>) -> Request<Body> {
    let integrity = Integrity::default();
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(integrity.clone());
    Request::from_parts(parts, Body::new(Watched { body, integrity }))
}

struct Watched {
    body: Body,
    integrity: Integrity,
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Err(_)) = &frame {
            self.integrity.0.store(true, Ordering::Release);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
