//! What is measured, seen from the schedule: a trait, and a Space behind it.

use std::path::Path;
use std::time::Duration;

use airlock::{CancellationToken, Error, Space};
use airlock_digest::{LeafHasher, copy_rate, sha256_rate};
use airlock_model::Route;

use crate::result::{GuestRates, HostRates};
use crate::samples::Latency;

/// How long each rate of the Space is measured.
const RATE_MILLISECONDS: u32 = 500;
/// How many bare processes are started for comparison with `exec`.
const SPAWNS: u32 = 100;

/// Measures what one core of the host can do, as long as a Space's is measured; blocks meanwhile.
pub(crate) fn host_rates() -> HostRates {
    let duration = Duration::from_millis(RATE_MILLISECONDS.into());
    HostRates {
        sha256_mib_s: sha256_rate(duration),
        sha256_name: LeafHasher::fastest().name().to_owned(),
        copy_mib_s: copy_rate(duration),
    }
}

/// Something that answers, runs commands and takes files.
///
/// The seam for tests of the order and of failures; a real run drives a [`SpaceTarget`].
pub trait Target: Send + Sync {
    /// One round trip.
    fn round_trip(&self, latency: Latency) -> impl Future<Output = Result<(), TargetError>> + Send;
    /// Sends a file and says how it went.
    fn upload(
        &self,
        source: &Path,
        name: &str,
    ) -> impl Future<Output = Result<Route, TargetError>> + Send;
    /// Fetches a file and says how it went.
    fn download(
        &self,
        name: &str,
        target: &Path,
    ) -> impl Future<Output = Result<Route, TargetError>> + Send;
    /// Removes a file that was sent.
    fn remove(&self, name: &str) -> impl Future<Output = Result<(), TargetError>> + Send;
    /// Measures what the Space's processors can do.
    fn rates(&self) -> impl Future<Output = Result<GuestRates, TargetError>> + Send;
}

/// Why a step did not work.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The SDK says why.
    #[error(transparent)]
    Sdk(#[from] Error),
    /// A command ran and failed.
    #[error("`{command}` in the Space ended with {code}")]
    Command {
        /// The command.
        command: String,
        /// Its exit code, as a shell gives it.
        code: i32,
    },
}

/// A running Space.
#[derive(Debug)]
pub struct SpaceTarget {
    space: Space,
    cancel: CancellationToken,
}

impl SpaceTarget {
    /// Measures this Space until `cancel` fires.
    pub fn new(space: Space, cancel: CancellationToken) -> Self {
        Self { space, cancel }
    }

    async fn exec(&self, program: &str, args: &[&str]) -> Result<(), TargetError> {
        exec(&self.space, program, args).await
    }
}

/// Runs a program to its end; one that fails is an error.
pub(crate) async fn exec(space: &Space, program: &str, args: &[&str]) -> Result<(), TargetError> {
    let output = space
        .exec(program)
        .args(args.iter().copied())
        .output()
        .await?;
    if output.end.is_success() {
        return Ok(());
    }
    let command = [&[program], args].concat().join(" ");
    Err(TargetError::Command {
        command,
        code: output.end.shell_code(),
    })
}

impl Target for SpaceTarget {
    async fn round_trip(&self, latency: Latency) -> Result<(), TargetError> {
        match latency {
            Latency::RpcNoop => {
                self.space.health().await?;
                Ok(())
            }
            Latency::ExecTrue => self.exec("true", &[]).await,
            Latency::ExecShTrue => self.exec("sh", &["-c", "true"]).await,
        }
    }

    async fn upload(&self, source: &Path, name: &str) -> Result<Route, TargetError> {
        let upload = self.space.upload(source, name).cancel(self.cancel.clone());
        Ok(upload.run().await?.route)
    }

    async fn download(&self, name: &str, target: &Path) -> Result<Route, TargetError> {
        let download = self
            .space
            .download(name, target)
            .cancel(self.cancel.clone());
        Ok(download.run().await?.route)
    }

    async fn remove(&self, name: &str) -> Result<(), TargetError> {
        self.exec("rm", &["-f", "--", name]).await
    }

    async fn rates(&self) -> Result<GuestRates, TargetError> {
        let measured = self.space.measure(RATE_MILLISECONDS, SPAWNS).await?;
        Ok(GuestRates {
            cpus: measured.cpus,
            sha256_mib_s: measured.sha256_mib_s,
            sha256_name: measured.sha256_name,
            sha256_all_mib_s: measured.sha256_all_mib_s,
            copy_mib_s: measured.copy_mib_s,
            spawn_ms: measured.spawn_us.iter().map(|us| us / 1000.0).collect(),
        })
    }
}
