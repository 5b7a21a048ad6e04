//! `cua.env.v1.SystemService`: what the Space is, how it fares, and its end.

mod facts;
pub use facts::BUILD_ID;
pub(crate) use facts::set_clock;
mod load;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use airlock_wire::cua::v1::system_service_server::SystemService;
use airlock_wire::cua::v1::{
    ComponentHealth, GetCapabilitiesRequest, GetCapabilitiesResponse, HealthRequest,
    HealthResponse, HealthStatus, InitRequest, InitResponse, MetricsRequest, MetricsResponse,
    ShutdownMode, ShutdownRequest, ShutdownResponse,
};
use airlock_wire::{Fault, FaultKind};
use tonic::{Request, Response, Status};

use crate::convert::{duration, from_duration, from_timestamp, now, timestamp};
use crate::server::{Role, Token};
use crate::state::{Ending, Shared};

/// A clock that is off by less is left alone: setting it would disturb more than it mends.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);
/// The most extra randomness that one call may bring, in bytes.
const MAX_ENTROPY_BYTES: usize = 4096;

/// The service.
#[derive(Debug)]
pub struct System {
    shared: Arc<Shared>,
    last_ticks: Mutex<load::CpuTicks>,
}

impl System {
    /// The service over the shared state.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            last_ticks: Mutex::default(),
        }
    }

    /// Checks all of the request before it changes anything.
    fn init(&self, request: InitRequest) -> Result<InitResponse, Fault> {
        let token = match request.token.as_str() {
            "" => None,
            text => Some(Token::new(text).map_err(invalid)?),
        };
        for (key, value) in &request.env {
            crate::process::check_env(key, value)?;
        }
        if !request.default_user.is_empty() {
            crate::state::find_user(&request.default_user)?;
        }
        if request.entropy.len() > MAX_ENTROPY_BYTES {
            let message = format!(
                "{} bytes of entropy were sent, at most {MAX_ENTROPY_BYTES} are taken",
                request.entropy.len()
            );
            return Err(Fault::new(FaultKind::LimitExceeded, message));
        }
        let unsupported = if !request.ca_bundle.is_empty() {
            Some("ca_bundle")
        } else if request.new_machine {
            Some("new_machine")
        } else {
            None
        };
        if let Some(feature) = unsupported {
            return Err(crate::convert::unsupported(feature));
        }
        let clock_adjusted = match request.now.as_ref() {
            Some(now) => self.set_clock(from_timestamp(now)?)?,
            None => false,
        };
        facts::add_entropy(&request.entropy);
        let mut defaults = self.shared.defaults();
        defaults.initialized = true;
        defaults.env.extend(request.env);
        defaults.labels.extend(request.labels);
        if !request.default_user.is_empty() {
            defaults.user = request.default_user;
        }
        if !request.default_workdir.is_empty() {
            defaults.workdir = request.default_workdir;
        }
        drop(defaults);
        Ok(InitResponse {
            token_changed: token.is_some_and(|token| self.shared.access.set_token(token)),
            clock_adjusted,
            new_machine: false,
        })
    }

    /// Sets the clock of a machine that is guestd's own; says whether it was off.
    fn set_clock(&self, wanted: Duration) -> Result<bool, Fault> {
        let off = wanted.abs_diff(now());
        // A container shares the host's clock.
        if self.shared.role != Role::Machine || off < CLOCK_TOLERANCE {
            return Ok(false);
        }
        facts::set_clock(wanted)
            .map(|()| true)
            .map_err(|error| Fault::from_io("the clock", &error))
    }

    fn end(&self, request: &ShutdownRequest) -> Result<ShutdownResponse, Fault> {
        let grace = match request.grace_period.as_ref() {
            Some(grace) => from_duration(grace)?,
            None => Duration::ZERO,
        };
        let ending = match request.mode() {
            ShutdownMode::Unspecified => {
                return Err(Fault::new(
                    FaultKind::InvalidArgument,
                    "no shutdown mode was given",
                ));
            }
            ShutdownMode::DriverExit | ShutdownMode::DriverRestart => Ending::Stop,
            ShutdownMode::GuestPoweroff => Ending::PowerOff,
            ShutdownMode::GuestReboot => Ending::Reboot,
        };
        if ending != Ending::Stop && self.shared.role == Role::Plain {
            let message = "this guestd is a plain process on a machine that is not its own";
            return Err(
                Fault::new(FaultKind::FeatureUnsupported, message).with("feature", "guest_power")
            );
        }
        self.shared.ending.ask(ending, grace);
        Ok(ShutdownResponse {})
    }
}

#[tonic::async_trait]
impl SystemService for System {
    async fn get_capabilities(
        &self,
        _: Request<GetCapabilitiesRequest>,
    ) -> Result<Response<GetCapabilitiesResponse>, Status> {
        Ok(Response::new(facts::capabilities(&self.shared)))
    }

    async fn init(&self, request: Request<InitRequest>) -> Result<Response<InitResponse>, Status> {
        Ok(Response::new(Self::init(self, request.into_inner())?))
    }

    async fn health(&self, _: Request<HealthRequest>) -> Result<Response<HealthResponse>, Status> {
        let component = |name: &str, present| ComponentHealth {
            name: name.to_owned(),
            status: HealthStatus::Serving.into(),
            detail: if present {
                String::new()
            } else {
                "absent".to_owned()
            },
        };
        Ok(Response::new(HealthResponse {
            status: HealthStatus::Serving.into(),
            components: vec![
                component("process", true),
                component("filesystem", true),
                component("lane", self.shared.has_lane),
            ],
            uptime: Some(duration(self.shared.started.elapsed())),
        }))
    }

    async fn metrics(
        &self,
        request: Request<MetricsRequest>,
    ) -> Result<Response<MetricsResponse>, Status> {
        let home = self.shared.default_user()?.home;
        let wire = match request.get_ref().disk_path.as_str() {
            "" => "/",
            path => path,
        };
        let path = crate::paths::resolve(wire.as_bytes(), &home).map_err(Fault::from)?;
        let (disk_total_bytes, disk_used_bytes) = load::disk(&path)?;
        let memory = load::memory();
        let network = load::network();
        let ticks = load::CpuTicks::sample();
        let cpu_percent = {
            let mut last = self
                .last_ticks
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            ticks.busy_percent_since(std::mem::replace(&mut *last, ticks))
        };
        Ok(Response::new(MetricsResponse {
            sampled_at: Some(timestamp(now())),
            cpu_count: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            cpu_percent,
            load_average_1m: load::average(),
            memory_total_bytes: memory.total_bytes,
            memory_used_bytes: memory.used_bytes,
            disk_total_bytes,
            disk_used_bytes,
            managed_process_count: self.shared.processes.running() as u32,
            media_session_count: 0,
            network_rx_bytes: network.received_bytes,
            network_tx_bytes: network.sent_bytes,
            memory_limited: self.shared.role == Role::Machine,
            disk_limited: self.shared.role == Role::Machine,
        }))
    }

    async fn shutdown(
        &self,
        request: Request<ShutdownRequest>,
    ) -> Result<Response<ShutdownResponse>, Status> {
        Ok(Response::new(self.end(request.get_ref())?))
    }
}

fn invalid(error: impl std::fmt::Display) -> Fault {
    Fault::new(FaultKind::InvalidArgument, error.to_string())
}
