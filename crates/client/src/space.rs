//! One running Space: upload, download, exec, and how it fares.

mod builders;
mod lane;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use airlock_engine::Engine;
use airlock_model::SpaceName;
use airlock_wire::Fault;
use airlock_wire::cua::v1::system_service_client::SystemServiceClient;
use airlock_wire::cua::v1::{HealthRequest, HealthStatus, MetricsRequest};
use airlock_wire::lane_v1::MeasureRequest;
use tonic::Status;

use crate::transfer::{Connection, Source, Target};
use crate::{Error, Exec, GuestPath};

pub use builders::{Download, Upload};
use lane::LaneKeep;

/// A connection to one running Space. Cheap to clone; clones share the connection and the slots
/// of the lane, which are leased for a transfer and given back soon after the last one.
#[derive(Clone)]
pub struct Space {
    name: SpaceName,
    connection: Connection,
    lane: Arc<LaneKeep>,
}

impl Space {
    pub(crate) fn new(engine: Engine, name: SpaceName, connection: Connection) -> Self {
        let lane = Arc::new(LaneKeep::new(engine, name.clone(), connection.clone()));
        Self {
            name,
            connection,
            lane,
        }
    }

    /// Its name.
    pub fn name(&self) -> &SpaceName {
        &self.name
    }

    /// Moves `source` to `dest` in the Space, where it appears whole or not at all. A relative
    /// `dest` starts at the home folder of the Space's user.
    pub fn upload(&self, source: impl Into<Source>, dest: impl Into<GuestPath>) -> Upload {
        Upload::new(self.clone(), source.into(), dest.into())
    }

    /// Moves the file `source` of the Space to `target`, where it appears whole or not at all.
    pub fn download(&self, source: impl Into<GuestPath>, target: impl Into<Target>) -> Download {
        Download::new(self.clone(), source.into(), target.into())
    }

    /// Reads the file `source` of the Space into memory, if it has `most` bytes or less.
    pub async fn download_bytes(
        &self,
        source: impl Into<GuestPath>,
        most: u64,
    ) -> Result<Vec<u8>, Error> {
        let target = Target::Bytes { most };
        Ok(Download::new(self.clone(), source.into(), target)
            .run_with_bytes()
            .await?
            .bytes)
    }

    /// Prepares to run `program`; no shell is involved.
    pub fn exec(&self, program: impl Into<String>) -> Exec {
        Exec::new(self.connection.clone(), program.into())
    }

    /// Asks guestd how it fares: the cheapest round trip there is.
    pub async fn health(&self) -> Result<Health, Error> {
        let mut client = SystemServiceClient::new(self.connection.service());
        let health = client
            .health(HealthRequest {})
            .await
            .map_err(remote)?
            .into_inner();
        Ok(Health {
            is_serving: health.status() == HealthStatus::Serving,
            uptime: health
                .uptime
                .and_then(|uptime| Duration::try_from(uptime).ok())
                .unwrap_or_default(),
        })
    }

    /// Load, memory and disk of the Space. `disk_path` says which file system is meant.
    pub async fn metrics(&self, disk_path: &str) -> Result<Metrics, Error> {
        let mut client = SystemServiceClient::new(self.connection.service());
        let request = MetricsRequest {
            disk_path: disk_path.to_owned(),
        };
        let metrics = client.metrics(request).await.map_err(remote)?.into_inner();
        Ok(Metrics {
            cpus: metrics.cpu_count,
            load_average_1m: metrics.load_average_1m,
            memory_total_bytes: metrics.memory_total_bytes,
            memory_used_bytes: metrics.memory_used_bytes,
            disk_total_bytes: metrics.disk_total_bytes,
            disk_used_bytes: metrics.disk_used_bytes,
        })
    }

    /// Measures what bounds transfers in this Space: hashing, copying and starting processes.
    pub async fn measure(&self, milliseconds: u32, spawns: u32) -> Result<Measured, Error> {
        let request = MeasureRequest {
            milliseconds,
            spawns,
        };
        let measured = self
            .connection
            .lane()
            .measure(request)
            .await
            .map_err(remote)?
            .into_inner();
        Ok(Measured {
            cpus: measured.cpus,
            sha256_mib_s: measured.sha256_mib_s,
            sha256_name: measured.sha256_name,
            sha256_all_mib_s: measured.sha256_all_mib_s,
            copy_mib_s: measured.copy_mib_s,
            spawn_us: measured.spawn_us,
        })
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that map_err wants"
)]
fn remote(status: Status) -> Error {
    Error::Remote(Fault::from_status(&status))
}

/// How guestd fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// Whether all its parts work.
    pub is_serving: bool,
    /// How long the Space has been up.
    pub uptime: Duration,
}

/// Load, memory and disk of a Space.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    /// Virtual CPUs.
    pub cpus: u32,
    /// Runnable processes, averaged over a minute.
    pub load_average_1m: f64,
    /// Memory of the Space.
    pub memory_total_bytes: u64,
    /// Memory in use.
    pub memory_used_bytes: u64,
    /// Size of the file system.
    pub disk_total_bytes: u64,
    /// Bytes in use on it.
    pub disk_used_bytes: u64,
}

/// What bounds transfers in a Space.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Virtual CPUs.
    pub cpus: u32,
    /// SHA-256 on one thread, MiB/s.
    pub sha256_mib_s: f64,
    /// Name of the implementation.
    pub sha256_name: String,
    /// SHA-256 on all CPUs at once, MiB/s.
    pub sha256_all_mib_s: f64,
    /// Copying memory on one thread, MiB/s.
    pub copy_mib_s: f64,
    /// Starting and awaiting the program `true`, microseconds each.
    pub spawn_us: Vec<f64>,
}
