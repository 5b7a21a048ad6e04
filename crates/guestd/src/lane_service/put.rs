//! One upload: parts arrive in any order, and the file appears once all of them are verified.
//!
//! ```text
//!            window, data            every byte arrived, root equal
//!  open ──► receiving ──── finish ──► finishing ──────────────────► published
//!             │  ▲ ack bad, lane_error: the part comes again
//!             └──┴── fault, stream ends, lease ends ──► drained ──► nothing left behind
//! ```
//!
//! One task owns all of it; threads do the pieces and report back. A slot is touched by nobody
//! once the response stream has ended.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use airlock_digest::Digest;
use airlock_lane::{Coverage, CoverageError, LaneDevice, Part, PartError};
use airlock_model::size::{NETWORK_CHUNK_BYTES, SLOT_BYTES};
use airlock_wire::lane_v1::put_ack::Result as AckResult;
use airlock_wire::lane_v1::put_request::Message as Request;
use airlock_wire::lane_v1::put_response::Message as Response;
use airlock_wire::lane_v1::{
    BadLeaves, Data, Empty, PutAck, PutDone, PutFinish, PutOpen, PutRequest, PutResponse, Window,
};
use airlock_wire::{Fault, FaultKind};
use bytes::Bytes;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use self::job::{Outcome, PutJob, Source};
use super::leases::LeaseUse;
use super::sink::Sink;
use super::{LaneShared, same_leaves};
use crate::paths;
use crate::publish::{PendingFile, PublishOptions};

mod job;

/// Data messages that wait for a thread, at most: they hold their bytes meanwhile.
const DATA_IN_FLIGHT: usize = 2;

/// Where the responses go.
pub(crate) type Responses = mpsc::Sender<Result<PutResponse, Status>>;

/// Runs one upload to its end.
pub(crate) async fn run(
    shared: Arc<LaneShared>,
    mut requests: Streaming<PutRequest>,
    responses: Responses,
) {
    let outcome = match Put::open(shared, &mut requests).await {
        Ok(put) => put.receive(requests, &responses).await,
        Err(fault) => Err(fault),
    };
    let last = match outcome {
        Ok(done) => Ok(PutResponse {
            message: Some(Response::Done(done)),
        }),
        Err(fault) => Err(fault.into()),
    };
    // A caller that went away wants no answer.
    let _ = responses.send(last).await;
}

struct Put {
    shared: Arc<LaneShared>,
    file: PendingFile,
    sink: Arc<Sink>,
    lane: Option<Lane>,
    fsync: bool,
    coverage: Coverage,
    finish: Option<(u64, Digest)>,
    /// The request stream ended after finish: nothing can be sent again.
    last_word: bool,
    outcomes: mpsc::UnboundedReceiver<Outcome>,
    report: mpsc::UnboundedSender<Outcome>,
    in_flight: usize,
    data_in_flight: usize,
}

/// The lane as this transfer may use it.
struct Lane {
    device: Arc<LaneDevice>,
    lease: Arc<LeaseUse>,
}

impl Put {
    async fn open(
        shared: Arc<LaneShared>,
        requests: &mut Streaming<PutRequest>,
    ) -> Result<Self, Fault> {
        let first = requests
            .message()
            .await
            .map_err(|s| Fault::from_status(&s))?;
        let Some(Request::Open(open)) = first.and_then(|request| request.message) else {
            return Err(invalid("the first message of an upload is open"));
        };
        same_leaves(open.leaf_bytes)?;
        let lane = if open.lease.is_empty() {
            None
        } else {
            Some(Lane {
                device: shared.lane()?,
                lease: shared.leases.begin_use(&open.lease)?,
            })
        };
        let location = shared.locate(&open.path)?;
        let dest = destination(location.path, &open)?;
        let options = PublishOptions {
            create_new: open.create_new,
            mode: open.mode,
            mtime_ns: open.mtime_ns,
            uid: open.uid,
            gid: open.gid,
            new_owner: location.new_owner,
            fsync: open.fsync,
            create_parents: open.create_parents,
        };
        // A handful of system calls on names: a hand-over to another thread costs more than they do.
        let file = PendingFile::create(&dest, options)?;
        let sink = Sink::new(file.file(), open.size, shared.disk_io())
            .map_err(|error| Fault::from_io(paths::escape_path(&dest), &error))?;
        let (report, outcomes) = mpsc::unbounded_channel();
        Ok(Self {
            shared,
            file,
            sink: Arc::new(sink),
            lane,
            fsync: open.fsync,
            coverage: Coverage::new(0),
            finish: None,
            last_word: false,
            outcomes,
            report,
            in_flight: 0,
            data_in_flight: 0,
        })
    }

    async fn receive(
        mut self,
        mut requests: Streaming<PutRequest>,
        responses: &Responses,
    ) -> Result<PutDone, Fault> {
        let lease_end = self.lane.as_ref().map(|lane| lane.lease.cancelled());
        let result = loop {
            if let Some((size, root)) = self.finish
                && self.coverage.is_complete(size)
            {
                break self.check_root(root).map(|()| size);
            }
            if self.last_word && self.in_flight == 0 {
                break Err(abandoned());
            }
            let listens = !self.last_word && self.data_in_flight < DATA_IN_FLIGHT;
            let step = tokio::select! {
                biased;
                () = cancelled(lease_end.as_ref()) => Err(lease_ended()),
                Some(outcome) = self.outcomes.recv() => self.acknowledge(outcome, responses).await,
                request = requests.message(), if listens => {
                    match request {
                        Ok(Some(request)) => self.accept(request),
                        Ok(None) if self.finish.is_some() => {
                            self.last_word = true;
                            Ok(())
                        }
                        Ok(None) => Err(abandoned()),
                        Err(status) => Err(Fault::from_status(&status)),
                    }
                }
            };
            if let Err(fault) = step {
                break Err(fault);
            }
        };
        match result {
            Ok(size) => self.publish(size).await,
            Err(fault) => {
                self.drain().await;
                Err(fault)
            }
        }
    }

    fn accept(&mut self, request: PutRequest) -> Result<(), Fault> {
        match request.message {
            Some(Request::Window(window)) => self.window(&window),
            Some(Request::Data(data)) => self.data(data),
            Some(Request::Finish(finish)) => self.finish(&finish),
            Some(Request::Open(_)) => Err(invalid("an upload is opened once")),
            None => Err(invalid("an empty message")),
        }
    }

    fn window(&mut self, window: &Window) -> Result<(), Fault> {
        let Some(lane) = &self.lane else {
            return Err(invalid("a window came for an upload without a lease"));
        };
        lane.lease.check(window.slot)?;
        let part = Part::announced(
            window.offset,
            window.length.into(),
            &window.leaf_sha256,
            SLOT_BYTES,
        )
        .map_err(part_fault)?;
        let source = Source::Slot {
            device: Arc::clone(&lane.device),
            slot: window.slot,
            _lease: Arc::clone(&lane.lease),
        };
        self.start(part, source)
    }

    fn data(&mut self, data: Data) -> Result<(), Fault> {
        let length = data.data.len() as u64;
        let part = Part::announced(data.offset, length, &data.leaf_sha256, NETWORK_CHUNK_BYTES)
            .map_err(part_fault)?;
        self.data_in_flight += 1;
        self.start(part, Source::Message(data.data))
    }

    fn start(&mut self, part: Part, source: Source) -> Result<(), Fault> {
        self.coverage.begin(&part).map_err(coverage_fault)?;
        let sink = Arc::clone(&self.sink);
        let job = PutJob::new(part, source, sink, self.report.clone());
        self.in_flight += 1;
        self.shared.workers.submit(Arc::new(job)).map_err(|error| {
            self.in_flight -= 1;
            super::no_thread(&error)
        })
    }

    fn finish(&mut self, finish: &PutFinish) -> Result<(), Fault> {
        if self.finish.is_some() {
            return Err(invalid("an upload is finished once"));
        }
        let root = Digest::try_from(&finish.root_sha256[..])
            .map_err(|error| invalid(format!("the root: {error}")))?;
        self.coverage.set_end(finish.size).map_err(coverage_fault)?;
        self.finish = Some((finish.size, root));
        Ok(())
    }

    /// Tells the sender what became of a part.
    async fn acknowledge(&mut self, outcome: Outcome, responses: &Responses) -> Result<(), Fault> {
        self.settle(&outcome);
        let part = outcome.part;
        let result = match outcome.result {
            Ok(()) => {
                self.coverage.complete(&part);
                AckResult::Ok(Empty {})
            }
            Err(job::PieceError::Bad(index)) => {
                self.coverage.abandon(&part);
                AckResult::Bad(BadLeaves { index })
            }
            Err(job::PieceError::Lane(reason)) => {
                self.coverage.abandon(&part);
                AckResult::LaneError(reason)
            }
            Err(job::PieceError::Write(error)) => {
                return Err(Fault::from_io(paths::escape_path(self.file.path()), &error));
            }
        };
        let ack = PutAck {
            offset: part.offset(),
            length: u32::try_from(part.bytes()).unwrap_or(u32::MAX),
            result: Some(result),
        };
        let message = Some(Response::Ack(ack));
        responses
            .send(Ok(PutResponse { message }))
            .await
            .map_err(|_| abandoned())
    }

    fn settle(&mut self, outcome: &Outcome) {
        self.in_flight -= 1;
        if outcome.from_message {
            self.data_in_flight -= 1;
        }
    }

    fn check_root(&self, announced: Digest) -> Result<(), Fault> {
        let root = self.coverage.root();
        if root == announced {
            return Ok(());
        }
        Err(Fault::new(
            FaultKind::ChecksumMismatch,
            format!("the leaves that came have the root {root}, announced was {announced}"),
        ))
    }

    async fn publish(self, size: u64) -> Result<PutDone, Fault> {
        let Self {
            file,
            sink,
            coverage,
            fsync,
            ..
        } = self;
        let publish = move || {
            sink.finish(size)
                .map_err(|error| Fault::from_io(paths::escape_path(file.path()), &error))?;
            drop(sink);
            Ok::<_, Fault>(file.publish()?)
        };
        let published = if fsync {
            // Only this waits for a disk.
            tokio::task::spawn_blocking(publish)
                .await
                .map_err(|error| Fault::new(FaultKind::Internal, error.to_string()))??
        } else {
            publish()?
        };
        Ok(PutDone {
            path: Bytes::copy_from_slice(published.path.as_os_str().as_bytes()),
            size,
            root_sha256: Bytes::copy_from_slice(coverage.root().as_ref()),
            replaced: published.replaced,
        })
    }

    /// Waits until no thread works for this upload any more.
    async fn drain(&mut self) {
        self.sink.cancel();
        while self.in_flight > 0 {
            let Some(outcome) = self.outcomes.recv().await else {
                return;
            };
            self.settle(&outcome);
        }
    }
}

/// The destination, with the name appended where it is a folder and the caller allows that.
fn destination(path: PathBuf, open: &PutOpen) -> Result<PathBuf, Fault> {
    if open.name_in_directory.is_empty() || !path.is_dir() {
        return Ok(path);
    }
    let name = &open.name_in_directory[..];
    if name.contains(&b'/') || name.contains(&0) || name == b"." || name == b".." {
        return Err(invalid(format!(
            "{:?} is no file name",
            paths::escape(name)
        )));
    }
    Ok(path.join(OsStr::from_bytes(name)))
}

async fn cancelled(token: Option<&tokio_util::sync::CancellationToken>) {
    match token {
        Some(token) => token.cancelled().await,
        None => std::future::pending().await,
    }
}

fn invalid(message: impl Into<String>) -> Fault {
    Fault::new(FaultKind::InvalidArgument, message)
}

fn part_fault(error: PartError) -> Fault {
    invalid(error.to_string())
}

fn coverage_fault(error: CoverageError) -> Fault {
    let kind = match error {
        CoverageError::Overlap { .. } | CoverageError::TooFarAhead { .. } => {
            FaultKind::OffsetMismatch
        }
        CoverageError::PastEnd { .. } => FaultKind::InvalidArgument,
    };
    Fault::new(kind, error.to_string())
}

fn abandoned() -> Fault {
    Fault::new(FaultKind::Cancelled, "the upload was abandoned")
}

fn lease_ended() -> Fault {
    Fault::new(
        FaultKind::SessionNotFound,
        "the lease ended during the transfer",
    )
}
