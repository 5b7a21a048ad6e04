//! Uploads in pieces that outlive a connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use airlock_wire::cua::v1::{
    BeginUploadRequest, BeginUploadResponse, CommitUploadRequest, UploadChunkRequest,
    UploadChunkResponse, WriteFileHeader, WriteMode,
};
use airlock_wire::{Fault, FaultKind};

use super::write::{Writer, Written, check_chunk};
use super::{MAX_CHUNK_BYTES, View};
use crate::convert::{from_duration, now, timestamp};

/// How long an upload stays without a piece arriving, unless it asks for another time.
const DEFAULT_TTL: Duration = Duration::from_secs(60 * 60);
const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Uploads under way at a time; each holds an open file.
const MAX_UPLOADS: usize = 256;

/// The uploads under way.
#[derive(Default)]
pub(super) struct Uploads(Mutex<HashMap<String, Arc<Upload>>>);

impl std::fmt::Debug for Uploads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Uploads").field(&self.lock().len()).finish()
    }
}

struct Upload {
    header: WriteFileHeader,
    ttl: Duration,
    expires: Mutex<Instant>,
    /// Taken by the one that commits or aborts.
    writer: Mutex<Option<Writer>>,
}

impl Upload {
    /// Every piece renews the time: only an upload that stands still expires.
    fn renew(&self) -> prost_types::Timestamp {
        *self.expires.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + self.ttl;
        timestamp(now() + self.ttl)
    }

    fn is_expired(&self) -> bool {
        *self.expires.lock().unwrap_or_else(PoisonError::into_inner) < Instant::now()
    }

    fn writer(&self) -> MutexGuard<'_, Option<Writer>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Upload>>> {
        let mut uploads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        uploads.retain(|_, upload| !upload.is_expired());
        uploads
    }

    fn find(&self, id: &str) -> Result<Arc<Upload>, Fault> {
        self.lock().get(id).cloned().ok_or_else(|| unknown(id))
    }

    /// Opens an upload, or finds the one that was opened under the same id before.
    pub(super) fn begin(
        &self,
        view: &View,
        request: BeginUploadRequest,
    ) -> Result<BeginUploadResponse, Fault> {
        let header = request
            .header
            .ok_or_else(|| Fault::new(FaultKind::InvalidArgument, "no header was given"))?;
        if header.mode() == WriteMode::Append {
            let message = "an upload in pieces cannot append";
            return Err(Fault::new(FaultKind::InvalidArgument, message));
        }
        let ttl = match request.ttl.as_ref().map(from_duration).transpose()? {
            None | Some(Duration::ZERO) => DEFAULT_TTL,
            Some(ttl) => ttl.min(MAX_TTL),
        };
        let id = match request.upload_id {
            id if id.is_empty() => random_id()?,
            id => id,
        };
        let mut uploads = self.lock();
        let upload = if let Some(upload) = uploads.get(&id) {
            if upload.header != header {
                let message = format!("upload {id} was begun with another header");
                return Err(Fault::new(FaultKind::InvalidArgument, message));
            }
            Arc::clone(upload)
        } else {
            if uploads.len() >= MAX_UPLOADS {
                let message = format!("{MAX_UPLOADS} uploads are under way already");
                return Err(
                    Fault::new(FaultKind::RateLimited, message).with("retry_after_ms", 1000)
                );
            }
            let upload = Arc::new(Upload {
                writer: Mutex::new(Some(Writer::open(view, &header)?)),
                header,
                ttl,
                expires: Mutex::new(Instant::now() + ttl),
            });
            uploads.insert(id.clone(), Arc::clone(&upload));
            upload
        };
        drop(uploads);
        let received_bytes = upload.writer().as_ref().map_or(0, Writer::received);
        Ok(BeginUploadResponse {
            upload_id: id,
            received_bytes,
            max_chunk_bytes: MAX_CHUNK_BYTES as u32,
            expires_at: Some(upload.renew()),
        })
    }

    /// Appends a piece; one that has arrived before is acknowledged and dropped.
    pub(super) fn chunk(&self, request: &UploadChunkRequest) -> Result<UploadChunkResponse, Fault> {
        check_chunk(request.data.len())?;
        let upload = self.find(&request.upload_id)?;
        let mut writer = upload.writer();
        let writer = writer.as_mut().ok_or_else(|| unknown(&request.upload_id))?;
        let received = writer.received();
        let end = request.offset.saturating_add(request.data.len() as u64);
        let duplicate = end <= received && !(request.data.is_empty() && end == received);
        if !duplicate {
            if request.offset != received {
                let message = format!(
                    "the piece starts at {}, but {received} bytes have been received",
                    request.offset
                );
                return Err(Fault::new(FaultKind::OffsetMismatch, message)
                    .with("expected_offset", received));
            }
            if let Err(fault) = writer.write(&request.data) {
                // What a half-written piece left behind would shift everything after it.
                self.lock().remove(&request.upload_id);
                return Err(fault);
            }
        }
        Ok(UploadChunkResponse {
            received_bytes: writer.received(),
            duplicate,
            expires_at: Some(upload.renew()),
        })
    }

    /// Verifies and publishes. The upload is over either way.
    pub(super) fn commit(&self, request: &CommitUploadRequest) -> Result<Written, Fault> {
        let upload = self.lock().remove(&request.upload_id);
        let writer = upload.and_then(|upload| upload.writer().take());
        let writer = writer.ok_or_else(|| unknown(&request.upload_id))?;
        writer.publish(Some(&request.sha256))
    }

    /// Drops an upload and what it received.
    pub(super) fn abort(&self, id: &str) -> Result<(), Fault> {
        let upload = self.lock().remove(id);
        let writer = upload.and_then(|upload| upload.writer().take());
        writer.map(drop).ok_or_else(|| unknown(id))
    }
}

fn random_id() -> Result<String, Fault> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Fault::new(FaultKind::Internal, format!("no random id: {error}")))?;
    Ok(hex::encode(bytes))
}

fn unknown(id: &str) -> Fault {
    let message =
        format!("there is no upload {id:?}; it may have expired without a piece arriving");
    Fault::new(FaultKind::SessionNotFound, message)
}
