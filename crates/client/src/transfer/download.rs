//! Moving one file out of a Space.
//!
//! A blocking thread copies parts out, checks the copies and writes them ([`receiver`]); this
//! side carries its messages. Parts are taken in file order, so that a stream can be a target and
//! the ordinary SHA-256 can be made on the way; those ahead wait in their slots.

use std::time::{Duration, Instant};

use airlock_model::Route;
use airlock_model::size::LEAF_BYTES;
use airlock_wire::Fault;
use airlock_wire::lane_v1::get_request::Message as Request;
use airlock_wire::lane_v1::{GetOpen, GetRequest};
use bytes::Bytes;
use std::os::unix::ffi::OsStrExt;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use self::receiver::{Event, Receiver, Settings};
use super::lane::HeldSlots;
use super::progress::{Meter, OnProgress};
use super::target::PublishOptions;
use super::{Connection, DownloadError, LaneSession, LaneUnusable, Receipt, Target};
use crate::GuestPath;

mod receiver;
mod writer;

/// How long an unfinished download may take to let go of its slots.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How a download shall be done.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of a caller"
)]
pub struct DownloadOptions {
    /// Fail when the target exists.
    pub create_new: bool,
    /// Give the copy the permission bits (less the umask) and the modification time that the
    /// file has in the Space.
    pub keep_attributes: bool,
    /// Reach the host's disk before success.
    pub fsync: bool,
    /// Compute the ordinary SHA-256 of the file as well.
    pub sha256: bool,
    /// Give up when guestd is silent for so long.
    pub stall_timeout: Duration,
}

impl Default for DownloadOptions {
    fn default() -> Self {
        Self {
            create_new: false,
            keep_attributes: true,
            fsync: false,
            sha256: false,
            stall_timeout: Duration::from_secs(60),
        }
    }
}

/// A finished download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Downloaded {
    /// The account of the transfer.
    pub receipt: Receipt,
    /// The bytes, where the target was memory.
    pub bytes: Vec<u8>,
}

/// Moves the file `source` of the Space to `target`.
///
/// With a [`LaneUnusable`] everything goes over the connection, and the receipt gives its reason.
pub async fn download(
    connection: &Connection,
    lane: Result<&LaneSession, &LaneUnusable>,
    source: &GuestPath,
    target: Target,
    options: DownloadOptions,
    progress: Option<OnProgress>,
    cancel: &CancellationToken,
) -> Result<Downloaded, DownloadError> {
    let started = Instant::now();
    // Ends the blocking thread however this future ends.
    let stop = cancel.child_token();
    let _stop_guard = stop.clone().drop_guard();
    let (slots, reason) = tokio::select! {
        biased;
        () = stop.cancelled() => return Err(DownloadError::Cancelled),
        slots = take_slots(lane) => slots,
    };
    let (lease, slot_list) = match &slots {
        Some(slots) => (slots.session().lease_id(), slots.slots().to_vec()),
        None => (Bytes::new(), Vec::new()),
    };
    let (requests, outgoing) = mpsc::unbounded_channel();
    let open = GetRequest {
        message: Some(Request::Open(GetOpen {
            path: Bytes::copy_from_slice(source.as_bytes()),
            offset: 0,
            length: None,
            lease,
            slots: slot_list,
            leaf_bytes: LEAF_BYTES as u32,
        })),
    };
    // The other end is held here.
    let _ = requests.send(open);
    let (events, incoming) = mpsc::channel(receiver::MAX_PENDING);
    let settings = Settings {
        publish: PublishOptions {
            create_new: options.create_new,
            keep_attributes: options.keep_attributes,
            fsync: options.fsync,
        },
        sha256: options.sha256,
        stall_timeout: options.stall_timeout,
        stop: stop.clone(),
    };
    let meter = Meter::new(progress, None);
    let source = source.clone();
    let receiver = Receiver::new(
        target, source, slots, reason, requests, incoming, meter, settings,
    );
    let working = tokio::task::spawn_blocking(move || receiver.run());

    // A task of its own, because slots stay in use until the Space let go of them, also when
    // nobody waits for the download any more.
    let connection = connection.clone();
    let carrying = tokio::spawn(async move {
        let mut responses = None;
        let carried = {
            let mut working = working;
            tokio::select! {
                biased;
                ended = &mut working => ended,
                () = carry(&connection, outgoing, events, &mut responses) => working.await,
            }
        };
        let (result, slots) = match carried {
            Ok(ended) => ended,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => (Err(DownloadError::Cancelled), None),
            },
        };
        if result.is_err()
            && let Some(slots) = slots
        {
            tokio::spawn(let_go(slots, responses));
        }
        result
    });
    let outcome = carrying
        .await
        .map_err(|error| match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => DownloadError::Cancelled,
        })??;
    let route = match (&outcome.network_reason, outcome.inline) {
        (_, true) => Route::Inline,
        (Some(_), false) => Route::Network,
        (None, false) => Route::Lane,
    };
    Ok(Downloaded {
        receipt: Receipt {
            bytes: outcome.bytes,
            root: outcome.root,
            sha256: outcome.sha256,
            route,
            route_reason: outcome.network_reason.filter(|_| !outcome.inline),
            leaf_retries: outcome.leaf_retries,
            path: outcome
                .placed
                .path
                .map(|path| path.as_os_str().as_bytes().to_vec())
                .unwrap_or_default(),
            replaced: outcome.placed.replaced,
            bytes_on_wire: outcome.bytes_on_wire,
            elapsed: started.elapsed(),
        },
        bytes: outcome.placed.bytes,
    })
}

type Responses = Streaming<airlock_wire::lane_v1::GetResponse>;

/// Hands every response on, until the stream or the receiver ends.
async fn carry(
    connection: &Connection,
    outgoing: mpsc::UnboundedReceiver<GetRequest>,
    events: mpsc::Sender<Event>,
    place: &mut Option<Responses>,
) {
    let carried: Result<(), Status> = async {
        let mut client = connection.lane();
        let call = client.get(UnboundedReceiverStream::new(outgoing)).await?;
        let responses = place.insert(call.into_inner());
        while let Some(response) = responses.message().await? {
            let event = Event::Response(response.message);
            if events.send(event).await.is_err() {
                break;
            }
        }
        Ok(())
    }
    .await;
    if let Err(status) = carried {
        // A receiver that is gone has its own reason.
        let _ = events
            .send(Event::Failed(Fault::from_status(&status)))
            .await;
    }
}

/// Gives slots back once the Space has ended its stream, which it does when nothing of it writes
/// to them any more.
async fn let_go(slots: HeldSlots, responses: Option<Responses>) {
    let drained = async {
        if let Some(mut responses) = responses {
            while let Some(Ok(_)) = responses.next().await {}
        }
    };
    match tokio::time::timeout(DRAIN_TIMEOUT, drained).await {
        Ok(()) => drop(slots),
        Err(_) => slots.forget(),
    }
}

/// Slots for the transfer, or the reason why it does without.
async fn take_slots(
    lane: Result<&LaneSession, &LaneUnusable>,
) -> (Option<HeldSlots>, Option<String>) {
    match lane {
        Err(unusable) => (None, Some(unusable.reason.clone())),
        Ok(session) => match session.broken() {
            Some(reason) => (None, Some(reason)),
            None => (Some(session.take(usize::MAX).await), None),
        },
    }
}
