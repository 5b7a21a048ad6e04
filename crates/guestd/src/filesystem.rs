//! `cua.env.v1.FilesystemService`: files and folders, one at a time.

mod entry;
mod list;
mod read;
mod tree;
mod upload;
mod write;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use airlock_wire::cua::v1::filesystem_service_server::FilesystemService;
use airlock_wire::cua::v1::{
    AbortUploadRequest, AbortUploadResponse, BeginUploadRequest, BeginUploadResponse,
    CommitUploadRequest, CommitUploadResponse, CreateSignedUrlRequest, CreateSignedUrlResponse,
    CreateWatcherRequest, CreateWatcherResponse, GetWatcherEventsRequest, GetWatcherEventsResponse,
    ListDirRequest, ListDirResponse, MakeDirRequest, MakeDirResponse, MoveRequest, MoveResponse,
    ReadFileRequest, ReadFileResponse, RemoveRequest, RemoveResponse, RemoveWatcherRequest,
    RemoveWatcherResponse, StatRequest, StatResponse, UploadChunkRequest, UploadChunkResponse,
    WatchDirRequest, WatchDirResponse, WriteFileRequest, WriteFileResponse,
};
use airlock_wire::{Fault, FaultKind};
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use self::upload::Uploads;
use crate::convert::unsupported;
use crate::paths;
use crate::server::body::Integrity;
use crate::state::Shared;
use crate::users::User;

/// The largest piece of a file in one message, in bytes.
pub const MAX_CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// The service.
#[derive(Debug)]
pub struct Files {
    shared: Arc<Shared>,
    uploads: Arc<Uploads>,
}

/// Whose view of the file system a call has.
#[derive(Debug, Clone)]
struct View {
    user: User,
    /// Owner of what is new, when it is not simply guestd's own user.
    new_owner: Option<(u32, u32)>,
}

impl View {
    fn resolve(&self, wire: &str) -> Result<PathBuf, Fault> {
        Ok(paths::resolve(wire.as_bytes(), &self.user.home)?)
    }
}

impl Files {
    /// The service over the shared state.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            uploads: Arc::default(),
        }
    }

    fn view(&self) -> Result<View, Fault> {
        let user = self.shared.default_user()?;
        Ok(View {
            new_owner: self.shared.new_owner(&user),
            user,
        })
    }
}

/// Refuses what this guestd cannot do, by the field that asks for it.
fn refuse(run_as: &str, xattr_namespace: &str) -> Result<(), Fault> {
    if !run_as.is_empty() {
        return Err(unsupported("fs.run_as"));
    }
    if !xattr_namespace.is_empty() {
        return Err(unsupported("fs.xattr"));
    }
    Ok(())
}

/// The answer to a call that wants the contract's own bulk disk.
///
/// On purpose without a reason of the contract: clients know these words, and go on over the
/// network.
fn refuse_bulk(bulk_slot: u32) -> Result<(), Status> {
    if bulk_slot == 0 {
        return Ok(());
    }
    Err(Status::failed_precondition(
        "no bulk lane is attached to this Space",
    ))
}

/// Runs what may block on a thread that may.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Fault::new(FaultKind::Internal, "the call was dropped")))
}

type Answer<T> = Result<Response<T>, Status>;
type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl FilesystemService for Files {
    type ReadFileStream = Messages<ReadFileResponse>;
    type WatchDirStream = Messages<WatchDirResponse>;

    async fn stat(&self, request: Request<StatRequest>) -> Answer<StatResponse> {
        let request = request.into_inner();
        refuse(&request.run_as, &request.xattr_namespace)?;
        let path = self.view()?.resolve(&request.path)?;
        let follow = !request.no_follow_symlinks;
        let entry = blocking(move || entry::stat(&path, follow)).await?;
        Ok(Response::new(StatResponse { entry: Some(entry) }))
    }

    async fn list_dir(&self, request: Request<ListDirRequest>) -> Answer<ListDirResponse> {
        let request = request.into_inner();
        refuse(&request.run_as, &request.xattr_namespace)?;
        let path = self.view()?.resolve(&request.path)?;
        let page = blocking(move || list::page(&path, &request)).await?;
        Ok(Response::new(page))
    }

    async fn make_dir(&self, request: Request<MakeDirRequest>) -> Answer<MakeDirResponse> {
        let request = request.into_inner();
        refuse(&request.run_as, "")?;
        let view = self.view()?;
        let path = view.resolve(&request.path)?;
        let (entry, created) = blocking(move || {
            let created = tree::make_dir(&path, &request, view.new_owner)?;
            Ok((entry::stat(&path, true)?, created))
        })
        .await?;
        Ok(Response::new(MakeDirResponse {
            entry: Some(entry),
            created,
        }))
    }

    async fn r#move(&self, request: Request<MoveRequest>) -> Answer<MoveResponse> {
        let request = request.into_inner();
        refuse(&request.run_as, "")?;
        let view = self.view()?;
        let source = view.resolve(&request.source)?;
        let destination = view.resolve(&request.destination)?;
        let entry = blocking(move || {
            tree::rename(&source, &destination, &request, view.new_owner)?;
            entry::stat(&destination, false)
        })
        .await?;
        Ok(Response::new(MoveResponse { entry: Some(entry) }))
    }

    async fn remove(&self, request: Request<RemoveRequest>) -> Answer<RemoveResponse> {
        let request = request.into_inner();
        refuse(&request.run_as, "")?;
        let path = self.view()?.resolve(&request.path)?;
        blocking(move || tree::remove(&path, &request)).await?;
        Ok(Response::new(RemoveResponse {}))
    }

    async fn watch_dir(&self, _: Request<WatchDirRequest>) -> Answer<Self::WatchDirStream> {
        Err(unsupported("fs_watch").into())
    }

    async fn create_watcher(
        &self,
        _: Request<CreateWatcherRequest>,
    ) -> Answer<CreateWatcherResponse> {
        Err(unsupported("fs_watch").into())
    }

    async fn get_watcher_events(
        &self,
        _: Request<GetWatcherEventsRequest>,
    ) -> Answer<GetWatcherEventsResponse> {
        Err(unsupported("fs_watch").into())
    }

    async fn remove_watcher(
        &self,
        _: Request<RemoveWatcherRequest>,
    ) -> Answer<RemoveWatcherResponse> {
        Err(unsupported("fs_watch").into())
    }

    async fn read_file(&self, request: Request<ReadFileRequest>) -> Answer<Self::ReadFileStream> {
        let request = request.into_inner();
        refuse(&request.run_as, &request.xattr_namespace)?;
        refuse_bulk(request.bulk_slot)?;
        let path = self.view()?.resolve(&request.path)?;
        let source = blocking(move || read::FileRange::open(&path, &request)).await?;
        Ok(Response::new(Box::pin(source.stream())))
    }

    async fn write_file(
        &self,
        request: Request<Streaming<WriteFileRequest>>,
    ) -> Answer<WriteFileResponse> {
        let integrity = request
            .extensions()
            .get::<Integrity>()
            .cloned()
            .unwrap_or_default();
        let written = write::receive(&self.view()?, request.into_inner(), &integrity).await?;
        Ok(Response::new(WriteFileResponse {
            entry: Some(written.entry),
            sha256: written.sha256,
        }))
    }

    async fn begin_upload(
        &self,
        request: Request<BeginUploadRequest>,
    ) -> Answer<BeginUploadResponse> {
        let (view, uploads) = (self.view()?, Arc::clone(&self.uploads));
        let request = request.into_inner();
        let begun = blocking(move || uploads.begin(&view, request)).await?;
        Ok(Response::new(begun))
    }

    async fn upload_chunk(
        &self,
        request: Request<UploadChunkRequest>,
    ) -> Answer<UploadChunkResponse> {
        let request = request.into_inner();
        refuse_bulk(request.bulk_slot)?;
        let uploads = Arc::clone(&self.uploads);
        let received = blocking(move || uploads.chunk(&request)).await?;
        Ok(Response::new(received))
    }

    async fn commit_upload(
        &self,
        request: Request<CommitUploadRequest>,
    ) -> Answer<CommitUploadResponse> {
        let uploads = Arc::clone(&self.uploads);
        let request = request.into_inner();
        let written = blocking(move || uploads.commit(&request)).await?;
        Ok(Response::new(CommitUploadResponse {
            entry: Some(written.entry),
            sha256: written.sha256,
        }))
    }

    async fn abort_upload(
        &self,
        request: Request<AbortUploadRequest>,
    ) -> Answer<AbortUploadResponse> {
        let uploads = Arc::clone(&self.uploads);
        let request = request.into_inner();
        blocking(move || uploads.abort(&request.upload_id)).await?;
        Ok(Response::new(AbortUploadResponse {}))
    }

    async fn create_signed_url(
        &self,
        _: Request<CreateSignedUrlRequest>,
    ) -> Answer<CreateSignedUrlResponse> {
        Err(unsupported("signed_url").into())
    }
}
