//! One HTTP service in front of all gRPC services: checks access, then hands the call on.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use airlock_wire::MAX_MESSAGE_BYTES;
use airlock_wire::cua::v1::filesystem_service_server::FilesystemServiceServer;
use airlock_wire::cua::v1::process_service_server::ProcessServiceServer;
use airlock_wire::cua::v1::system_service_server::SystemServiceServer;
use airlock_wire::lane_v1::lane_service_server::LaneServiceServer;
use airlock_wire::{Fault, FaultKind};
use http::{Method, Request, Response, StatusCode};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;

use crate::filesystem::Files;
use crate::lane_service::LaneService;
use crate::process::Commands;
use crate::state::Shared;
use crate::system::System;

/// Cheap to clone: every connection gets one.
#[derive(Clone)]
pub(super) struct Router {
    shared: Arc<Shared>,
    system: SystemServiceServer<System>,
    processes: ProcessServiceServer<Commands>,
    files: FilesystemServiceServer<Files>,
    lane: LaneServiceServer<LaneService>,
}

impl Router {
    pub(super) fn new(shared: &Arc<Shared>, lane: LaneService) -> Self {
        Self {
            shared: Arc::clone(shared),
            system: SystemServiceServer::new(System::new(Arc::clone(shared))),
            processes: ProcessServiceServer::new(Commands::new(Arc::clone(shared)))
                .max_decoding_message_size(MAX_MESSAGE_BYTES),
            files: FilesystemServiceServer::new(Files::new(Arc::clone(shared)))
                .max_decoding_message_size(MAX_MESSAGE_BYTES),
            lane: lane.into_server(),
        }
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl Service<Request<Body>> for Router {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answer {
        let path = request.uri().path();
        if path == "/health" && request.method() == Method::GET {
            return answer(plain(StatusCode::NO_CONTENT));
        }
        if request.method() != Method::POST {
            return answer(plain(StatusCode::NOT_FOUND));
        }
        if let Err(fault) = self.shared.access.check(path, request.headers()) {
            return answer(Status::from(fault).into_http());
        }
        let service = path.trim_start_matches('/').split('/').next();
        match service {
            Some("cua.env.v1.SystemService") => self.system.call(request),
            Some("cua.env.v1.ProcessService") => self.processes.call(request),
            Some("cua.env.v1.FilesystemService") => self.files.call(super::body::watch(request)),
            Some("airlock.lane.v1.LaneService") => self.lane.call(request),
            Some(_) | None => {
                let message = format!("this guestd has no {path}");
                answer(Status::from(Fault::new(FaultKind::Unimplemented, message)).into_http())
            }
        }
    }
}

fn answer(response: Response<Body>) -> Answer {
    Box::pin(std::future::ready(Ok(response)))
}

fn plain(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
