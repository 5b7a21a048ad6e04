//! Moving one file into a Space.
//!
//! A blocking thread reads, hashes and fills slots ([`feeder`]); this side carries its messages
//! and hands it the answers. The whole upload is one call: open, windows and finish leave without
//! waiting for an answer, which is needed only to use a slot again.

use std::time::{Duration, Instant};

use airlock_digest::{Digest, FileHasher};
use airlock_lane::Part;
use airlock_model::Route;
use airlock_model::size::{INLINE_MAX_BYTES, LEAF_BYTES};
use airlock_wire::lane_v1::put_request::Message as Request;
use airlock_wire::lane_v1::put_response::Message as Response;
use airlock_wire::lane_v1::{Data, PutDone, PutFinish, PutOpen, PutRequest};
use airlock_wire::{Fault, FaultKind};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use self::feeder::{Event, Fed, Feeder, Pace};
use super::error::Misconduct;
use super::lane::HeldSlots;
use super::progress::{Meter, OnProgress};
use super::source::OpenSource;
use super::{Connection, LaneSession, LaneUnusable, Receipt, Source, UploadError};
use crate::GuestPath;

mod feeder;

/// Requests that wait for the connection, at most; the slots bound what they stand for.
const REQUESTS: usize = 4;

/// How an upload shall be done.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of a caller"
)]
pub struct UploadOptions {
    /// Make missing parent folders.
    pub create_parents: bool,
    /// Fail when the destination exists.
    pub create_new: bool,
    /// Name to use when the destination is a folder. Absent: the name of the source file.
    pub name_in_directory: Option<Vec<u8>>,
    /// Give the copy the permission bits and the modification time of the source file.
    pub keep_attributes: bool,
    /// Permission bits, whatever the source has.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Success means that the file survives the death of the VM.
    pub fsync: bool,
    /// Compute the ordinary SHA-256 of the file as well.
    pub sha256: bool,
    /// Give up when guestd is silent for so long.
    pub stall_timeout: Duration,
}

impl Default for UploadOptions {
    fn default() -> Self {
        Self {
            create_parents: false,
            create_new: false,
            name_in_directory: None,
            keep_attributes: true,
            mode: None,
            uid: None,
            gid: None,
            fsync: false,
            sha256: false,
            stall_timeout: Duration::from_secs(60),
        }
    }
}

/// Moves `source` to `dest` in the Space; it appears there whole, or not at all.
///
/// With a [`LaneUnusable`] everything goes over the connection, and the receipt gives its reason.
pub async fn upload(
    connection: &Connection,
    lane: Result<&LaneSession, &LaneUnusable>,
    source: Source,
    dest: &GuestPath,
    options: UploadOptions,
    progress: Option<OnProgress>,
    cancel: &CancellationToken,
) -> Result<Receipt, UploadError> {
    let started = Instant::now();
    // Ends the blocking thread however this future ends.
    let stop = cancel.child_token();
    let _stop_guard = stop.clone().drop_guard();
    let opening = {
        let stop = stop.clone();
        tokio::task::spawn_blocking(move || OpenSource::open(source, stop))
    };
    let source = tokio::select! {
        () = cancel.cancelled() => return Err(UploadError::Cancelled),
        opened = opening => opened.map_err(panicked)??,
    };
    let upload = Upload {
        connection,
        dest,
        options,
        stop,
        started,
    };
    if source.is_small() {
        return upload.inline(source, progress).await;
    }
    upload.stream(source, lane, progress).await
}

struct Upload<'a> {
    connection: &'a Connection,
    dest: &'a GuestPath,
    options: UploadOptions,
    stop: CancellationToken,
    started: Instant,
}

impl Upload<'_> {
    fn open(&self, source: &OpenSource, lease: Bytes) -> PutOpen {
        let attributes = source.attributes();
        let kept = self.options.keep_attributes;
        let name = self.options.name_in_directory.clone().or(attributes.name);
        PutOpen {
            path: Bytes::copy_from_slice(self.dest.as_bytes()),
            name_in_directory: name.unwrap_or_default().into(),
            create_parents: self.options.create_parents,
            create_new: self.options.create_new,
            mode: self.options.mode.or(attributes.mode.filter(|_| kept)),
            mtime_ns: attributes.mtime_ns.filter(|_| kept),
            uid: self.options.uid,
            gid: self.options.gid,
            fsync: self.options.fsync,
            size: source.size(),
            lease,
            leaf_bytes: LEAF_BYTES as u32,
        }
    }

    /// All in one flight.
    async fn inline(
        self,
        mut source: OpenSource,
        progress: Option<OnProgress>,
    ) -> Result<Receipt, UploadError> {
        let open = self.open(&source, Bytes::new());
        // At most 64 KiB of a local file: shorter than a hand-over to another thread.
        let data = Bytes::copy_from_slice(source.next(INLINE_MAX_BYTES)?);
        source.check_unchanged()?;
        let part = Part::of(0, &data);
        let root = airlock_digest::root(part.leaves());
        let size = data.len() as u64;
        let sha256 = self.options.sha256.then(|| {
            let mut hasher = FileHasher::new();
            hasher.update(&data);
            hasher.finish()
        });
        let mut messages = vec![message(Request::Open(open))];
        if !data.is_empty() {
            messages.push(message(Request::Data(Data {
                offset: 0,
                data,
                leaf_sha256: part.leaf_bytes().into(),
                lane_error: String::new(),
            })));
        }
        messages.push(finish(size, root));
        let call = async {
            let mut client = self.connection.lane();
            let mut responses = client.put(tokio_stream::iter(messages)).await?.into_inner();
            loop {
                match responses.message().await? {
                    Some(response) => {
                        if let Some(Response::Done(done)) = response.message {
                            return Ok::<_, tonic::Status>(Some(done));
                        }
                    }
                    None => return Ok(None),
                }
            }
        };
        let timeout = self.options.stall_timeout;
        let done = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(UploadError::Cancelled),
            answer = tokio::time::timeout(timeout, call) => answer
                .map_err(|_| UploadError::Stalled { timeout })?
                .map_err(|status| Fault::from_status(&status))?
                .ok_or(Misconduct::EndOfStream)?,
        };
        let mut meter = Meter::new(progress, Some(size));
        meter.add(size);
        meter.finish();
        let fed = Fed {
            bytes: size,
            root,
            sha256,
            network_reason: None,
            leaf_retries: 0,
            bytes_on_wire: size,
            done,
        };
        receipt(fed, Route::Inline, self.started)
    }

    /// By windows through the lane, or by data over the connection.
    async fn stream(
        self,
        source: OpenSource,
        lane: Result<&LaneSession, &LaneUnusable>,
        progress: Option<OnProgress>,
    ) -> Result<Receipt, UploadError> {
        let (slots, reason) = tokio::select! {
            () = self.stop.cancelled() => return Err(UploadError::Cancelled),
            slots = take_slots(lane, source.size()) => slots,
        };
        let lease = slots
            .as_ref()
            .map_or_else(Bytes::new, |slots| slots.session().lease_id());
        let (requests, outgoing) = mpsc::channel(REQUESTS);
        let open = message(Request::Open(self.open(&source, lease)));
        // The channel has room for it.
        let _ = requests.try_send(open);
        let (events, incoming) = mpsc::unbounded_channel();
        let pace = Pace {
            stall_timeout: self.options.stall_timeout,
            sha256: self.options.sha256,
            stop: self.stop.clone(),
        };
        let meter = Meter::new(progress, source.size());
        let feeder = Feeder::new(source, slots, reason, requests, incoming, meter, pace);
        let mut feeding = tokio::task::spawn_blocking(move || feeder.run());

        let answers = async {
            let mut client = self.connection.lane();
            let mut responses = client
                .put(ReceiverStream::new(outgoing))
                .await?
                .into_inner();
            while let Some(response) = responses.message().await? {
                let Some(response) = response.message else {
                    continue;
                };
                let last = matches!(response, Response::Done(_));
                if events.send(Event::Response(response)).is_err() || last {
                    break;
                }
            }
            Ok::<_, tonic::Status>(())
        };
        let fed = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(UploadError::Cancelled),
            fed = &mut feeding => fed,
            answered = answers => match answered.map_err(|status| Fault::from_status(&status)) {
                // The feeder went first and knows why; or all is well, and it is about to end.
                Ok(()) => {
                    drop(events);
                    feeding.await
                }
                Err(fault) if fault.kind == FaultKind::Cancelled => {
                    let _ = events.send(Event::Failed(fault));
                    feeding.await
                }
                // It may be in the middle of a read that nothing can end, so it is not waited for.
                Err(fault) => return Err(fault.into()),
            },
        };
        let fed = fed.map_err(panicked)??;
        let route = match fed.network_reason {
            Some(_) => Route::Network,
            None => Route::Lane,
        };
        receipt(fed, route, self.started)
    }
}

/// Slots for the transfer, or the reason why it does without.
async fn take_slots(
    lane: Result<&LaneSession, &LaneUnusable>,
    size: Option<u64>,
) -> (Option<HeldSlots>, Option<String>) {
    let session = match lane {
        Ok(session) => session,
        Err(unusable) => return (None, Some(unusable.reason.clone())),
    };
    if let Some(reason) = session.broken() {
        return (None, Some(reason));
    }
    let window = airlock_lane::plan::SMALL_WINDOW_BYTES as u64;
    let most = size.map_or(usize::MAX, |size| {
        usize::try_from(size.div_ceil(window)).unwrap_or(usize::MAX)
    });
    (Some(session.take(most).await), None)
}

fn message(message: Request) -> PutRequest {
    PutRequest {
        message: Some(message),
    }
}

fn finish(size: u64, root: Digest) -> PutRequest {
    message(Request::Finish(PutFinish {
        size,
        root_sha256: Bytes::copy_from_slice(root.as_ref()),
    }))
}

fn receipt(fed: Fed, route: Route, started: Instant) -> Result<Receipt, UploadError> {
    let PutDone {
        path,
        size,
        root_sha256,
        replaced,
    } = fed.done;
    if size != fed.bytes || root_sha256 != fed.root.as_ref() {
        return Err(Misconduct::Root {
            expected: fed.root,
            got: format!("{root_sha256:x} for {size} bytes"),
        }
        .into());
    }
    Ok(Receipt {
        bytes: fed.bytes,
        root: fed.root,
        sha256: fed.sha256,
        route,
        route_reason: fed.network_reason,
        leaf_retries: fed.leaf_retries,
        path: path.to_vec(),
        replaced,
        bytes_on_wire: fed.bytes_on_wire,
        elapsed: started.elapsed(),
    })
}

fn panicked(error: tokio::task::JoinError) -> UploadError {
    match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        // The runtime is shutting down.
        Err(_) => UploadError::Cancelled,
    }
}
