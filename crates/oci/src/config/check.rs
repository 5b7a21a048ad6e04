//! What a configuration must hold before a runtime sees it.
//!
//! A runtime would refuse some of this too, late and in its own words; that host root is in no
//! map it would not.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use super::{ContainerConfig, IdMapping, Limits, Zero};

/// Places the runtime fills itself; a mount on them could uncover what is hidden there.
const KERNEL_FOLDERS: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The longest host name; sethostname(2).
const HOSTNAME_MAX: usize = 64;

/// Which of the two maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdKind {
    /// User ids.
    User,
    /// Group ids.
    Group,
}

impl fmt::Display for IdKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::User => "user",
            Self::Group => "group",
        })
    }
}

/// Why no container can be configured this way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The filter of system calls is not written for this machine.
    #[error("container Spaces are not known to run on {got} machines")]
    Machine {
        /// Rust's name of the architecture.
        got: &'static str,
    },
    /// The host would not take the name.
    #[error("the host name {got:?} is not 1 to {HOSTNAME_MAX} letters, digits, dots and hyphens")]
    Hostname {
        /// The name.
        got: String,
    },
    /// There is no first program.
    #[error("there is no program to start")]
    NoProgram,
    /// An argument, or a variable's name or value, cannot be handed to a program.
    #[error("{got:?} cannot be handed to a program")]
    Text {
        /// The argument or the variable.
        got: String,
    },
    /// The id 0 of the host would be an id of the Space.
    #[error("the {kind} ids of the Space would include the host's root")]
    MapsHostRoot {
        /// Which map.
        kind: IdKind,
    },
    /// The Space would have no root.
    #[error("the {kind} ids of the Space do not include 0")]
    NoRoot {
        /// Which map.
        kind: IdKind,
    },
    /// A run of ids is empty, does not fit in 32 bits, or shares ids with another.
    #[error(
        "the {kind} ids from {} ({} of them, on the host from {}) are empty, too many or overlap others",
        .mapping.inside, .mapping.count, .mapping.outside
    )]
    Mapping {
        /// Which map.
        kind: IdKind,
        /// The run.
        mapping: IdMapping,
    },
    /// A path must be absolute and without `..`.
    #[error("the {what} {} is not an absolute path without ..", path.display())]
    Path {
        /// What the path is for.
        what: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// A mount would cover the Space's root or what the kernel shows of itself.
    #[error("nothing may be mounted at {}", target.display())]
    Target {
        /// Where it would appear.
        target: PathBuf,
    },
    /// A joined network namespace needs a sysfs made for it, and only that one does.
    #[error("a joined network namespace needs a prepared sysfs, and a new one must have none")]
    Sysfs,
    /// A limit nothing can run under.
    #[error("nothing can run within {} CPUs, {} bytes and {} processes", .limits.cpus, .limits.memory_bytes, .limits.pids)]
    Limits {
        /// The limits.
        limits: Limits,
    },
}

/// Refuses what would weaken the walls or could not start.
pub(super) fn check(config: &ContainerConfig) -> Result<(), ConfigError> {
    check_hostname(&config.hostname)?;
    check_program(config)?;
    check_ids(IdKind::User, &config.uid_map, config.zero)?;
    check_ids(IdKind::Group, &config.gid_map, config.zero)?;
    check_path("root folder", &config.rootfs)?;
    for (what, path) in [
        ("network namespace", &config.netns),
        ("sysfs", &config.sysfs),
    ] {
        if let Some(path) = path {
            check_path(what, path)?;
        }
    }
    if config.netns.is_some() != config.sysfs.is_some() {
        return Err(ConfigError::Sysfs);
    }
    if let Some((path, limits)) = &config.cgroup {
        check_path("cgroup", Path::new(path))?;
        let is_enough = limits.cpus > 0 && limits.memory_bytes > 0 && limits.pids > 0;
        if !is_enough || i64::try_from(limits.memory_bytes).is_err() {
            return Err(ConfigError::Limits { limits: *limits });
        }
    }
    for mount in &config.mounts {
        check_path("mount's source", &mount.source)?;
        check_path("mount's target", &mount.target)?;
        let is_root = mount.target == Path::new("/");
        let is_kernels = KERNEL_FOLDERS
            .iter()
            .any(|folder| mount.target.starts_with(folder));
        if is_root || is_kernels {
            return Err(ConfigError::Target {
                target: mount.target.clone(),
            });
        }
    }
    Ok(())
}

fn check_hostname(name: &str) -> Result<(), ConfigError> {
    let is_fine = (1..=HOSTNAME_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.');
    if is_fine {
        Ok(())
    } else {
        Err(ConfigError::Hostname {
            got: name.to_owned(),
        })
    }
}

fn check_program(config: &ContainerConfig) -> Result<(), ConfigError> {
    if config.args.first().is_none_or(String::is_empty) {
        return Err(ConfigError::NoProgram);
    }
    if let Some(argument) = config.args.iter().find(|argument| argument.contains('\0')) {
        return Err(ConfigError::Text {
            got: argument.clone(),
        });
    }
    for (name, value) in &config.env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(ConfigError::Text { got: name.clone() });
        }
    }
    Ok(())
}

fn check_ids(kind: IdKind, map: &[IdMapping], zero: Zero) -> Result<(), ConfigError> {
    for (index, run) in map.iter().enumerate() {
        let fits = run.count > 0
            && run.inside.checked_add(run.count).is_some()
            && run.outside.checked_add(run.count).is_some();
        let overlaps = map[..index].iter().any(|other| {
            overlap((run.inside, run.count), (other.inside, other.count))
                || overlap((run.outside, run.count), (other.outside, other.count))
        });
        if !fits || overlaps {
            return Err(ConfigError::Mapping {
                kind,
                mapping: *run,
            });
        }
        if run.outside == 0 && zero == Zero::HostRoot {
            return Err(ConfigError::MapsHostRoot { kind });
        }
    }
    if is_mapped(map, 0) {
        Ok(())
    } else {
        Err(ConfigError::NoRoot { kind })
    }
}

fn overlap(one: (u32, u32), other: (u32, u32)) -> bool {
    let end = |(first, count): (u32, u32)| u64::from(first) + u64::from(count);
    u64::from(one.0) < end(other) && u64::from(other.0) < end(one)
}

fn check_path(what: &'static str, path: &Path) -> Result<(), ConfigError> {
    let has_dots = path
        .components()
        .any(|part| matches!(part, Component::ParentDir));
    let has_nul = path.as_os_str().as_encoded_bytes().contains(&0);
    if path.is_absolute() && !has_dots && !has_nul {
        Ok(())
    } else {
        Err(ConfigError::Path {
            what,
            path: path.to_owned(),
        })
    }
}

/// Whether the Space has this id.
pub(super) fn is_mapped(map: &[IdMapping], id: u32) -> bool {
    map.iter()
        .any(|run| id >= run.inside && id - run.inside < run.count)
}

/// The last id up to which the Space has every one from 0 on.
pub(super) fn last_mapped_from_zero(map: &[IdMapping]) -> u32 {
    let mut runs: Vec<_> = map.iter().map(|run| (run.inside, run.count)).collect();
    runs.sort_unstable();
    let mut next = 0;
    for (first, count) in runs {
        if first != next {
            break;
        }
        next = first.saturating_add(count);
    }
    next.saturating_sub(1)
}
