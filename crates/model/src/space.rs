//! What a Space is made of, and the state it is in.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::name::{ImageName, SpaceName};

/// A text that names no member of a closed set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is none of {allowed}")]
pub struct UnknownWord {
    /// What was given.
    pub found: String,
    /// The members, separated by commas.
    pub allowed: &'static str,
}

macro_rules! word_enum {
    ($(#[$doc:meta])* $name:ident, $allowed:literal, { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every member.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The member's word, as in the CLI and in JSON.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;
            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(UnknownWord { found: text.to_owned(), allowed: $allowed }),
                }
            }
        }
    };
}

word_enum! {
    /// What a Space is.
    Kind, "auto, vm, container", {
        /// Airlock chooses.
        Auto = "auto",
        /// A virtual machine.
        Vm = "vm",
        /// A container of an OCI runtime.
        Container = "container",
    }
}

word_enum! {
    /// What runs a Space.
    Runtime, "auto, qemu, runc, crun, youki, runsc", {
        /// Airlock chooses.
        Auto = "auto",
        /// QEMU, for virtual machines.
        Qemu = "qemu",
        /// The OCI runtime of Docker and containerd.
        Runc = "runc",
        /// The OCI runtime of Podman, in C.
        Crun = "crun",
        /// An OCI runtime in Rust.
        Youki = "youki",
        /// gVisor: a kernel of its own in user space.
        Runsc = "runsc",
    }
}

word_enum! {
    /// What executes a VM's instructions.
    Accel, "auto, kvm, hvf, tcg", {
        /// The fastest one that was proven to work on this host.
        Auto = "auto",
        /// Linux hardware virtualisation.
        Kvm = "kvm",
        /// macOS hardware virtualisation.
        Hvf = "hvf",
        /// QEMU's software emulation. Works everywhere, many times slower.
        Tcg = "tcg",
    }
}

word_enum! {
    /// What a Space can reach.
    Network, "default, none", {
        /// The internet and the local network, never the host's loopback.
        Default = "default",
        /// Nothing.
        None = "none",
    }
}

word_enum! {
    /// How the bytes of one transfer went.
    Route, "inline, lane, network", {
        /// Inside the RPC, because the file is small.
        Inline = "inline",
        /// Through the shared memory of the lane.
        Lane = "lane",
        /// Through the control connection, because the lane could not be used.
        Network = "network",
    }
}

word_enum! {
    /// Where a Space is in its life.
    SpaceState, "creating, starting, running, stopping, stopped, crashed", {
        /// Its files are being made.
        Creating = "creating",
        /// Its machine boots.
        Starting = "starting",
        /// guestd answers.
        Running = "running",
        /// Its machine shuts down.
        Stopping = "stopping",
        /// Its machine is off; its disk is kept.
        Stopped = "stopped",
        /// Its keeper or machine died unasked. `start` and `delete` work.
        Crashed = "crashed",
    }
}

/// What was asked for when a Space was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpaceSpec {
    /// Its name.
    pub name: SpaceName,
    /// The image it starts from.
    pub image: ImageName,
    /// What it is.
    pub kind: Kind,
    /// What runs it.
    pub runtime: Runtime,
    /// What executes its instructions.
    pub accel: Accel,
    /// Number of virtual CPUs.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Size of the root file system in GiB, where the image has one.
    pub disk_gb: u64,
    /// What it can reach.
    pub network: Network,
}

impl SpaceSpec {
    /// A Space with the default resources: 2 CPUs, 2,048 MiB of memory, 8 GiB of disk.
    #[must_use]
    pub fn new(name: SpaceName, image: ImageName) -> Self {
        Self {
            name,
            image,
            kind: Kind::Auto,
            runtime: Runtime::Auto,
            accel: Accel::Auto,
            cpus: 2,
            memory_mb: 2048,
            disk_gb: 8,
            network: Network::Default,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        for accel in Accel::ALL {
            assert_eq!(accel.as_str().parse(), Ok(*accel));
            let json = serde_json::to_string(accel).unwrap();
            assert_eq!(json, format!("\"{accel}\""));
        }
        let error = "xen".parse::<Accel>().unwrap_err();
        assert_eq!(error.to_string(), "\"xen\" is none of auto, kvm, hvf, tcg");
    }

    #[test]
    fn the_allowed_list_names_every_member() {
        let words: Vec<_> = SpaceState::ALL.iter().map(|s| s.as_str()).collect();
        assert_eq!(
            "?".parse::<SpaceState>().unwrap_err().allowed,
            words.join(", ")
        );
    }
}
