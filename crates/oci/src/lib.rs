//! Container Spaces on any OCI runtime. Knows nothing of images, lanes and clients.
//!
//! [`ids`], [`cgroup`] and [`runtime`] find out what the host can do; [`minder`] is the process
//! that makes namespaces and starts the runtime in them; [`build`] turns a [`ContainerConfig`]
//! into the `config.json` of the OCI runtime specification, from values alone.
//!
//! The walls, from the outside in:
//!
//! 1. a user namespace whose ids are never the host's root, and whose root has only the
//!    capabilities of an ordinary container,
//! 2. own mount, pid, ipc, uts, cgroup and network namespaces,
//! 3. [`seccomp`]: an allow-list of system calls, with what is left out and why,
//! 4. [`masks`]: kernel files that are hidden or read-only,
//! 5. no new privileges, ever: a setuid program inside gains nothing,
//! 6. limits for memory, CPU and processes where the host has cgroups to set them in.

pub mod cgroup;
pub mod config;
pub mod ids;
pub mod masks;
pub mod minder;
pub mod runtime;
pub mod seccomp;
mod sys;
pub mod userns;

pub use config::{
    CgroupMount, ConfigError, ContainerConfig, DEFAULT_OPEN_FILES, IdKind, IdMapping, Limits,
    Mount, Zero, build,
};
pub use ids::Ids;
pub use seccomp::{Arch, seccomp_profile};
