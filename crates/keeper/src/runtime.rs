//! What runs a Space. A new runtime is a new file here and a new arm in [`Machine`].

mod data;
mod oci;
mod qemu;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use airlock_lane::LaneMemory;
use airlock_model::{BootConfig, NetConfig, SpaceName, SpacePaths};

use crate::guest::Door;
use crate::protocol::{Launch, LaunchFailure, MachineLaunch, ProcessId};

/// What a runtime needs to start a machine.
pub(crate) struct Boot<'a> {
    pub(crate) launch: &'a Launch,
    pub(crate) paths: &'a SpacePaths,
    pub(crate) lane: &'a Arc<LaneMemory>,
    /// The boot configuration for the networks that the runtime made: control and data.
    pub(crate) config:
        &'a dyn Fn(Option<NetConfig>, Option<NetConfig>) -> Result<BootConfig, LaunchError>,
}

/// Why a Space did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error("the Space {name} runs already")]
    AlreadyRunning { name: SpaceName },
    #[error("cannot {what}")]
    Host {
        what: &'static str,
        source: std::io::Error,
    },
    #[error("the container did not start: {message}")]
    Container {
        message: String,
        hint: String,
        unsupported: bool,
    },
    #[error("no guestd to put into the container")]
    Guestd(#[from] airlock_image::GuestdError),
    #[error("QEMU cannot be used")]
    Discover(#[source] airlock_qemu::discover::DiscoverError),
    #[error("the network \"default\" cannot be made: {reason}")]
    Network { reason: String, hint: String },
    #[error("cannot start a program")]
    Spawn(#[from] airlock_process::SpawnError),
    #[error("QEMU did not start: {log}")]
    QemuStart {
        log: String,
        source: airlock_qemu::qmp::QmpError,
    },
    #[error("guestd cannot be reached: {message}")]
    Guest { message: String },
    #[error("the machine ended while it booted: {exit}")]
    MachineEnded { exit: String },
    #[error("the Space did not answer within {} s", timeout.as_secs())]
    BootTimeout { timeout: Duration },
    #[error("nobody waits for the Space any more")]
    StarterGone,
}

impl LaunchError {
    /// What the person can act on.
    pub(crate) fn kind(&self) -> LaunchFailure {
        match self {
            Self::AlreadyRunning { .. } => LaunchFailure::AlreadyRunning,
            Self::Host { .. } | Self::Spawn(_) => LaunchFailure::Host,
            Self::Discover(_)
            | Self::Network { .. }
            | Self::Guestd(_)
            | Self::Container {
                unsupported: true, ..
            } => LaunchFailure::Unsupported,
            Self::Container {
                unsupported: false, ..
            }
            | Self::QemuStart { .. }
            | Self::Guest { .. }
            | Self::MachineEnded { .. }
            | Self::BootTimeout { .. } => LaunchFailure::Boot,
            Self::StarterGone => LaunchFailure::Cancelled,
        }
    }

    /// The whole chain in one line.
    pub(crate) fn report(&self) -> String {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        text
    }

    /// What to do about it.
    pub(crate) fn hints(&self) -> Vec<String> {
        match self {
            Self::AlreadyRunning { .. } | Self::StarterGone | Self::Guest { .. } => Vec::new(),
            Self::Host { .. } | Self::Spawn(_) => {
                vec!["`airlock doctor` says what this host has".to_owned()]
            }
            Self::Container { hint, .. } if hint.is_empty() => {
                vec!["`airlock doctor` says what this host has".to_owned()]
            }
            Self::Guestd(error) => vec![error.hint().to_owned()],
            Self::Discover(error) => vec![error.hint()],
            Self::Network { hint, .. } | Self::Container { hint, .. } => vec![hint.clone()],
            Self::QemuStart { .. } | Self::MachineEnded { .. } => {
                vec!["less --memory-mb may help if the host is short of memory".to_owned()]
            }
            Self::BootTimeout { .. } => {
                vec!["a busy host boots slowly; more time: AIRLOCK_BOOT_TIMEOUT_S=120".to_owned()]
            }
        }
    }
}

/// What a running machine does by itself.
pub(crate) enum MachineEvent {
    /// It ended; with what is known of why.
    Ended(String),
    /// It has no data network any more, until it is started again.
    NetworkLost(String),
}

/// A machine that was started.
pub(crate) enum Machine {
    Qemu(qemu::QemuMachine),
    Container(oci::Container),
}

impl Machine {
    /// Starts the machine that `boot` describes.
    pub(crate) async fn start(boot: Boot<'_>) -> Result<Self, LaunchError> {
        match &boot.launch.machine {
            MachineLaunch::Vm(vm) => Ok(Self::Qemu(qemu::QemuMachine::start(&boot, vm).await?)),
            MachineLaunch::Container(container) => Ok(Self::Container(
                oci::Container::start(&boot, container).await?,
            )),
        }
    }

    /// What stands between the Space and the host.
    pub(crate) fn protection(&self) -> Vec<String> {
        match self {
            Self::Qemu(machine) => machine.protection(),
            Self::Container(container) => container.protection(),
        }
    }

    /// The machine's process.
    pub(crate) fn id(&self) -> ProcessId {
        match self {
            Self::Qemu(machine) => machine.id(),
            Self::Container(container) => container.id(),
        }
    }

    /// Where guestd will answer.
    pub(crate) fn door(&self) -> Door {
        match self {
            Self::Qemu(machine) => machine.door(),
            Self::Container(container) => container.door(),
        }
    }

    /// The next thing that happens to the machine. Safe to cancel.
    pub(crate) async fn event(&mut self) -> MachineEvent {
        match self {
            Self::Qemu(machine) => machine.event().await,
            Self::Container(container) => container.event().await,
        }
    }

    /// Completes when the machine ended, with what is known of why. Safe to cancel.
    pub(crate) async fn wait(&mut self) -> String {
        match self {
            Self::Qemu(machine) => machine.wait().await,
            Self::Container(container) => container.wait().await,
        }
    }

    /// Whether the machine ended because the Space wanted to.
    pub(crate) fn ended_well(&mut self) -> bool {
        match self {
            Self::Qemu(machine) => machine.ended_well(),
            Self::Container(container) => container.ended_well(),
        }
    }

    /// Asks the machine, not the Space, to end, and waits for it.
    pub(crate) async fn quit(&mut self) {
        match self {
            Self::Qemu(machine) => machine.quit().await,
            Self::Container(container) => container.quit().await,
        }
    }

    /// Ends the machine with force. Afterwards none of its processes exists.
    pub(crate) async fn pull_plug(&mut self) {
        match self {
            Self::Qemu(machine) => machine.pull_plug().await,
            Self::Container(container) => container.pull_plug().await,
        }
    }
}
