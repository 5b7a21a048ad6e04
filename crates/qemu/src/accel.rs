//! Which accelerator a machine gets: proven, not trusted.
//!
//! A host may have a `/dev/kvm` that opens, even makes VMs, and never runs an ordinary guest
//! kernel (QEMU aborts or spins for ever). So `auto` boots a kernel once with a short deadline
//! and remembers what happened until the host reboots or QEMU or the kernel changes.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use airlock_model::Accel;
use serde::{Deserialize, Serialize};

use crate::discover::Qemu;
use airlock_process::RunAs;

mod cache;
mod probe;

/// What executes a guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// Linux hardware virtualisation.
    Kvm,
    /// macOS hardware virtualisation.
    Hvf,
    /// QEMU's software emulation.
    Tcg,
}

impl Backend {
    /// QEMU's word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Hvf => "hvf",
            Self::Tcg => "tcg",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<Backend> for Accel {
    fn from(backend: Backend) -> Self {
        match backend {
            Backend::Kvm => Self::Kvm,
            Backend::Hvf => Self::Hvf,
            Backend::Tcg => Self::Tcg,
        }
    }
}

/// What a Linux kernel prints first on its console. Waiting for it proves that the guest's code
/// runs, long before any user space does.
pub const KERNEL_MARKER: &str = "Linux version";
/// How long a probe waits for its marker. A kernel under KVM prints within 0.3 s.
pub const PROBE_DEADLINE: Duration = Duration::from_secs(5);

/// What a proof needs.
#[derive(Debug, Clone)]
pub struct ProbeContext<'a> {
    /// The QEMU that would run the machine.
    pub qemu: &'a Qemu,
    /// The kernel to boot.
    pub kernel: &'a Path,
    /// The initramfs to boot.
    pub initrd: &'a Path,
    /// The text on the console that proves execution.
    pub marker: &'a str,
    /// The file that remembers verdicts; its folder must exist.
    pub cache: &'a Path,
    /// The user that the machine would run as: a proof under another user proves nothing.
    pub run_as: Option<RunAs>,
    /// How long the machine has to print the marker.
    pub deadline: Duration,
}

/// The accelerator to use, and why, in one line for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// What executes the instructions.
    pub accel: Backend,
    /// Why.
    pub reason: String,
}

/// Why a requested accelerator cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccelError {
    /// This kind of host has no such accelerator.
    #[error("{requested} needs {needs}")]
    WrongHost {
        /// What was asked for.
        requested: Backend,
        /// What it would take.
        needs: &'static str,
    },
    /// The proof failed.
    #[error("{requested} does not work here: {reason}")]
    Unproven {
        /// What was asked for.
        requested: Backend,
        /// What happened.
        reason: String,
    },
    /// The proof could not be tried.
    #[error("cannot try {requested}")]
    Probe {
        /// What was asked for.
        requested: Backend,
        /// Why.
        source: ProbeError,
    },
}

impl AccelError {
    /// What a person can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::WrongHost { .. } | Self::Unproven { .. } | Self::Probe { .. } => {
                "--accel auto uses the fastest accelerator that works; --accel tcg works everywhere"
            }
        }
    }
}

/// Why a proof could not be tried at all, which says nothing about the accelerator.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// A file or pipe could not be opened.
    #[error("cannot open {what}")]
    Open {
        /// What.
        what: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// QEMU did not start.
    #[error("cannot start QEMU")]
    Start(#[from] airlock_process::SpawnError),
    /// QEMU could not be watched.
    #[error("cannot watch QEMU")]
    Watch(#[source] io::Error),
}

/// What a proof found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Verdict {
    works: bool,
    reason: String,
}

/// Turns what was asked for into an accelerator that works.
///
/// `auto` always succeeds: with the hardware's if it is proven, else with TCG. An accelerator
/// asked for by name is proven too (TCG needs no proof), and an error if it does not work.
pub async fn resolve(requested: Accel, context: &ProbeContext<'_>) -> Result<Resolved, AccelError> {
    match requested {
        Accel::Tcg => Ok(Resolved {
            accel: Backend::Tcg,
            reason: "asked for".to_owned(),
        }),
        Accel::Kvm => demand(Backend::Kvm, context).await,
        Accel::Hvf => demand(Backend::Hvf, context).await,
        Accel::Auto => Ok(choose(context).await),
    }
}

/// The hardware accelerator of this operating system.
const NATIVE: Backend = if cfg!(target_os = "macos") {
    Backend::Hvf
} else {
    Backend::Kvm
};

async fn choose(context: &ProbeContext<'_>) -> Resolved {
    match demand(NATIVE, context).await {
        Ok(resolved) => resolved,
        Err(error) => {
            let mut reason = error.to_string();
            if let AccelError::Probe { source, .. } = &error {
                reason = format!("{reason}: {source}");
            }
            Resolved {
                accel: Backend::Tcg,
                reason,
            }
        }
    }
}

async fn demand(backend: Backend, context: &ProbeContext<'_>) -> Result<Resolved, AccelError> {
    if let Some(needs) = missing(backend, context.qemu) {
        return Err(AccelError::WrongHost {
            requested: backend,
            needs,
        });
    }
    let key = cache::key(backend, context);
    let verdict = if let Some(verdict) = cache::load(context.cache, &key) {
        verdict
    } else {
        let verdict = probe::run(backend, context)
            .await
            .map_err(|source| AccelError::Probe {
                requested: backend,
                source,
            })?;
        cache::store(context.cache, &key, &verdict);
        verdict
    };
    if verdict.works {
        Ok(Resolved {
            accel: backend,
            reason: verdict.reason,
        })
    } else {
        Err(AccelError::Unproven {
            requested: backend,
            reason: verdict.reason,
        })
    }
}

/// What this host lacks for hardware virtualisation, if that can be told without a proof.
pub fn lacking() -> Option<&'static str> {
    match NATIVE {
        Backend::Kvm if !Path::new("/dev/kvm").exists() => Some("there is no /dev/kvm"),
        Backend::Kvm | Backend::Hvf | Backend::Tcg => None,
    }
}

/// What this host lacks before a proof makes sense.
fn missing(backend: Backend, qemu: &Qemu) -> Option<&'static str> {
    let native = match backend {
        Backend::Tcg => return None,
        Backend::Hvf => (cfg!(target_os = "macos"), "macOS"),
        Backend::Kvm => (cfg!(target_os = "linux"), "Linux"),
    };
    if !native.0 {
        return Some(native.1);
    }
    if backend == Backend::Kvm && !Path::new("/dev/kvm").exists() {
        return Some(
            "/dev/kvm, which is not there (no virtualisation, or its module is not loaded)",
        );
    }
    if crate::argv::Arch::host() != Some(qemu.arch) {
        return Some("a guest of the host's own architecture");
    }
    None
}
