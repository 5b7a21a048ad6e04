//! What a container Space is allowed: the configuration that any OCI runtime carries out.
//!
//! [`build`] turns a [`ContainerConfig`] into the `config.json` of the OCI runtime specification.
//! Values only: nothing here looks at the host, so the same input gives the same file, and what
//! the host can do (cgroups, network namespaces, id ranges) is found out by the caller.
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

pub mod config;
pub mod masks;
pub mod seccomp;

pub use config::{
    CgroupMount, ConfigError, ContainerConfig, DEFAULT_OPEN_FILES, IdKind, IdMapping, Limits,
    Mount, build,
};
pub use seccomp::{Arch, seccomp_profile};
