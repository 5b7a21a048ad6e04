//! The start of a download: the file, its range, and the slots that may be used.

use std::collections::VecDeque;
use std::sync::Arc;

use airlock_lane::{Coverage, Part, plan};
use airlock_model::size::{INLINE_MAX_BYTES, LEAF_BYTES};
use airlock_wire::Fault;
use airlock_wire::lane_v1::get_request::Message as Request;
use airlock_wire::lane_v1::get_response::Message as Response;
use airlock_wire::lane_v1::{Data, GetEnd, GetOpen, GetRequest};
use tokio::sync::{Semaphore, mpsc};
use tonic::Streaming;

use super::{DATA_IN_FLIGHT, Get, Lane, Opened, Responses, invalid, root_bytes};
use crate::lane_service::source::Source;
use crate::lane_service::{LaneShared, same_leaves};

impl Get {
    /// Reads the first message and opens the file it names.
    pub(super) async fn open(
        shared: Arc<LaneShared>,
        requests: &mut Streaming<GetRequest>,
        responses: Responses,
    ) -> Result<Opened, Fault> {
        let first = requests
            .message()
            .await
            .map_err(|s| Fault::from_status(&s))?;
        let Some(Request::Open(open)) = first.and_then(|request| request.message) else {
            return Err(invalid("the first message of a download is open"));
        };
        same_leaves(open.leaf_bytes)?;
        let path = shared.locate(&open.path)?.path;
        // A handful of system calls on names: a hand-over to another thread costs more than they do.
        let source = Source::open(&path, shared.disk_io())?;
        let (start, end) = range(&open, source.size())?;
        if end - start <= INLINE_MAX_BYTES as u64 {
            return Ok(Opened::Inline(inline(&source, start, end)?));
        }
        let lane = lane(&shared, &open)?;
        let slots = lane.as_ref().map_or(0, |lane| lane.free.len());
        let (report, outcomes) = mpsc::unbounded_channel();
        let entry = source.entry();
        let get = Self {
            shared,
            source: Arc::new(source),
            lane,
            lane_error: None,
            start,
            end,
            next: start,
            window_bytes: plan::window_bytes(Some(end - start), slots),
            again: VecDeque::new(),
            verified: start,
            coverage: Coverage::new(start),
            ended: false,
            in_flight: 0,
            outcomes,
            report,
            data_permits: Arc::new(Semaphore::new(DATA_IN_FLIGHT)),
            responses,
        };
        Ok(Opened::Transfer(entry, Box::new(get)))
    }
}

/// The range of bytes wanted of a file of `size` bytes.
fn range(open: &GetOpen, size: u64) -> Result<(u64, u64), Fault> {
    let start = open.offset;
    if !start.is_multiple_of(LEAF_BYTES as u64) {
        return Err(invalid(format!(
            "offset {start} is not the start of a leaf"
        )));
    }
    let end = match open.length {
        Some(length) => start.saturating_add(length).min(size),
        None => size,
    };
    if start > size {
        return Err(invalid(format!(
            "offset {start} lies past the end at {size}"
        )));
    }
    Ok((start, end.max(start)))
}

/// Everything about a file that fits into one message.
fn inline(source: &Source, start: u64, end: u64) -> Result<Vec<Response>, Fault> {
    let mut data = vec![0; usize::try_from(end - start).unwrap_or(0)];
    source
        .read_buffered(start, &mut data)
        .map_err(|error| source.fault(&error))?;
    source.check_unchanged()?;
    let part = Part::of(start, &data);
    let root = root_bytes(airlock_digest::root(part.leaves()));
    let mut messages = vec![Response::Entry(source.entry())];
    if !data.is_empty() {
        messages.push(Response::Data(Data {
            offset: start,
            leaf_sha256: part.leaf_bytes().into(),
            data: data.into(),
            lane_error: String::new(),
        }));
    }
    messages.push(Response::End(GetEnd {
        size: end - start,
        root_sha256: root,
    }));
    Ok(messages)
}

fn lane(shared: &LaneShared, open: &GetOpen) -> Result<Option<Lane>, Fault> {
    if open.lease.is_empty() || open.slots.is_empty() {
        return Ok(None);
    }
    let lease = shared.leases.begin_use(&open.lease)?;
    let mut slots = Vec::new();
    for slot in &open.slots {
        lease.check(*slot)?;
        if !slots.contains(slot) {
            slots.push(*slot);
        }
    }
    Ok(Some(Lane {
        device: shared.lane()?,
        lease,
        free: slots.iter().copied().collect(),
        slots,
        broken: false,
    }))
}
