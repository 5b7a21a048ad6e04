//! What a client and a keeper say to each other over `keeper.sock`.
//!
//! Each message is one JSON object behind its length (u32, little endian); a message may carry
//! descriptors. A client sends a request and reads one response. The socket is private to the
//! user (0600, in a 0700 folder, and the keeper checks the peer's uid), so the token may cross it.
//! A lease lives as long as the connection that asked for it.

mod transport;

use std::path::PathBuf;
use std::time::Duration;

use airlock_model::{Accel, LaneGeometry, Runtime, SpaceState};
use serde::{Deserialize, Serialize};

pub(crate) use transport::short_path;
pub use transport::{MessageStream, TransportError};

/// Largest message in bytes, either way.
pub const MAX_MESSAGE_BYTES: usize = 256 * 1024;

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// How the Space fares.
    Status,
    /// A connected stream to guestd. The response carries its descriptor.
    Connect,
    /// Slots of the lane, held until this connection closes. The response carries the lane's
    /// descriptor. Waits while none is free.
    Lease,
    /// Shut the Space down and end the keeper. Answered when the machine is off.
    Stop {
        /// How long the Space may take to shut down by itself; zero pulls the plug.
        grace: Duration,
    },
}

/// What the keeper answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case")]
pub enum Response {
    /// To [`Request::Status`].
    Status(Status),
    /// To [`Request::Connect`], with one descriptor.
    Connected {
        /// Bearer token of this boot.
        token: String,
    },
    /// To [`Request::Lease`], with one descriptor.
    Leased {
        /// 32 hexadecimal digits.
        lease: String,
        /// The slots, in ascending order; at least one.
        slots: Vec<u32>,
        /// Layout of the lane.
        geometry: LaneGeometry,
    },
    /// To [`Request::Stop`].
    Stopped,
    /// The request cannot be met.
    Refused {
        /// Why.
        reason: String,
    },
}

/// What a keeper knows of its Space; also the content of `state.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Where the Space is in its life.
    pub state: SpaceState,
    /// The keeper's process.
    pub keeper: ProcessId,
    /// The machine's process, while there is one.
    pub machine: Option<ProcessId>,
    /// What runs it.
    pub runtime: Runtime,
    /// What executes the instructions of a VM.
    pub accel: Option<Accel>,
    /// Why that one.
    pub accel_reason: Option<String>,
    /// What stands between the Space and the host, and what does not: a sentence each.
    pub protection: Vec<String>,
    /// When the machine was started, nanoseconds since the Unix epoch.
    pub started_at_unix_ns: u64,
    /// From the start of the machine to guestd's first healthy answer.
    pub boot_ms: Option<u64>,
    /// Why the Space is in a state that nobody asked for.
    pub detail: Option<String>,
    /// Build of the keeper.
    pub build: String,
}

/// A process that stays itself when pids are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// The pid.
    pub pid: u32,
    /// Field 22 of `/proc/<pid>/stat`: clock ticks from boot to its start.
    pub start_ticks: u64,
}

/// How the engine tells a new keeper what to run; JSON on the keeper's standard input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// `AIRLOCK_HOME`, absolute.
    pub home: PathBuf,
    /// The Space's specification.
    pub spec: airlock_model::SpaceSpec,
    /// 32 hexadecimal digits, kept for the Space's life.
    pub machine_id: String,
    /// What to run it on.
    pub machine: MachineLaunch,
    /// Build of the host program.
    pub build: String,
    /// Longest time from machine start to a healthy answer.
    pub boot_timeout: Duration,
    /// The Space is being created: if it does not start and nobody waits, its files go too.
    pub new: bool,
}

/// What a Space runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "machine", rename_all = "snake_case")]
pub enum MachineLaunch {
    /// A virtual machine.
    Vm(VmLaunch),
    /// A container.
    Container(ContainerLaunch),
}

/// What a virtual machine needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmLaunch {
    /// The proven accelerator.
    pub accel: Accel,
    /// Why that one.
    pub accel_reason: String,
    /// Kernel of the image.
    pub kernel: PathBuf,
    /// Initramfs of the image.
    pub initramfs: PathBuf,
    /// Raw root disk of the image, where it has one.
    pub root: Option<PathBuf>,
}

/// What a container needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerLaunch {
    /// The OCI runtime.
    pub runtime: Runtime,
    /// Its program.
    pub program: PathBuf,
    /// What it says of its version.
    pub version: String,
    /// The image's unpacked root folder.
    pub tree: PathBuf,
    /// The ids that own its files.
    pub ids: airlock_oci::Ids,
    /// Environment that the image asks for.
    pub env: Vec<(String, String)>,
}

/// What a starting keeper reports, one JSON object a line on its standard output, until it is
/// ready or failed; then it closes the pipe. When the reader goes away before, it gives up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LaunchEvent {
    /// The machine runs; guestd does not answer yet.
    Booting,
    /// guestd answers.
    Ready {
        /// From the start of the machine to guestd's first healthy answer.
        boot_ms: u64,
    },
    /// It did not work; everything was undone but the Space's files.
    Failed {
        /// What the person can act on.
        kind: LaunchFailure,
        /// What happened.
        message: String,
        /// What to do about it.
        hints: Vec<String>,
        /// The last lines of the Space's console, if that helps.
        console_tail: String,
    },
}

/// Kinds of failure to start a Space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchFailure {
    /// Something that the host lacks or does not allow.
    Unsupported,
    /// The machine did not boot.
    Boot,
    /// The Space runs already.
    AlreadyRunning,
    /// Disk full, permission denied and the like.
    Host,
    /// The starter went away.
    Cancelled,
}
