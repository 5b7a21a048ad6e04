//! Where a Space's processes are counted and limited among the host's cgroups (cgroups(7)).
//!
//! Version 2 where the host uses it, version 1 where only that has the controllers (the "hybrid"
//! layout has both). Root makes groups at the top; an ordinary user only below a group that the
//! system gave away, as systemd does for a user's session.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::CgroupMount;

/// Name of the group above all Spaces of root.
const TOP: &str = "airlock";
/// How often an emptied group is tried to be removed: the kernel empties it a moment after the
/// last process was waited for.
const REMOVE_TRIES: u32 = 500;
const REMOVE_PAUSE: Duration = Duration::from_millis(2);

/// What the host's cgroups allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    /// Limits can be set.
    Limits {
        /// The group in which those of Spaces are made, from the top of the hierarchy.
        parent: String,
        /// Whether swap is counted.
        can_limit_swap: bool,
        /// The version that has the controllers: 1 or 2.
        version: u8,
    },
    /// None can.
    None {
        /// Why, for a person.
        reason: String,
    },
}

impl Support {
    /// What the calling user can do here.
    pub fn detect() -> Self {
        let hierarchies = Hierarchies::read();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        hierarchies.support(&own, rustix::process::geteuid().is_root())
    }

    /// The place of the Space with machine id `id`.
    pub fn place(&self, id: &str) -> Option<String> {
        match self {
            Self::Limits { parent, .. } => Some(format!("{parent}/space-{id}")),
            Self::None { .. } => None,
        }
    }

    /// What the Space sees of it.
    pub fn mount(&self) -> CgroupMount {
        match self {
            Self::Limits { .. } => CgroupMount::ReadOnly,
            Self::None { .. } => CgroupMount::Hidden,
        }
    }

    /// What a person should know of it.
    pub fn describe(&self) -> String {
        match self {
            Self::Limits { version, .. } => {
                format!("memory, CPU and processes are limited (cgroup version {version})")
            }
            Self::None { reason } => format!("no limits of memory, CPU and processes: {reason}"),
        }
    }
}

/// Lifts the limits of a Space at `place` that is about to be killed: thousands of processes take
/// long to end within a small share of a CPU, and at the end of their memory for ever.
pub fn release(place: &str) {
    /// Files of both versions, and what lifts each; swap before memory, as version 1 wants it.
    const LIFTED: [(&str, &str); 5] = [
        ("cpu.cfs_quota_us", "-1"),
        ("memory.memsw.limit_in_bytes", "-1"),
        ("memory.limit_in_bytes", "-1"),
        ("cpu.max", "max"),
        ("memory.max", "max"),
    ];
    for hierarchy in Hierarchies::read().all {
        let folder = hierarchy.mount.join(place.trim_start_matches('/'));
        for (file, value) in LIFTED {
            let file = folder.join(file);
            if file.exists() {
                // What cannot be lifted only takes longer.
                let _ = fs::write(file, value);
            }
        }
    }
}

/// Removes the emptied groups of a Space at `place`, in every hierarchy.
pub fn remove(place: &str) {
    for hierarchy in Hierarchies::read().all {
        remove_folder(&hierarchy.mount.join(place.trim_start_matches('/')));
    }
}

fn remove_folder(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_folder(&entry.path());
        }
    }
    for _ in 0..REMOVE_TRIES {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(REMOVE_PAUSE);
            }
            // Gone, or not ours to remove.
            Ok(()) | Err(_) => return,
        }
    }
}

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    mount: PathBuf,
    /// Of version 1; empty for version 2.
    controllers: Vec<String>,
    version: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchies {
    all: Vec<Hierarchy>,
}

impl Hierarchies {
    fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    /// Reads `proc_pid_mountinfo(5)`: the mount point is field 5, and the type, the source and the
    /// options of the file system follow a lone hyphen.
    fn parse(mountinfo: &str) -> Self {
        let all = mountinfo.lines().filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mount = PathBuf::from(before.split(' ').nth(4)?);
            let mut fields = after.split(' ');
            let version = match fields.next()? {
                "cgroup" => 1,
                "cgroup2" => 2,
                _other => return None,
            };
            let options = fields.nth(1).unwrap_or_default();
            let controllers = match version {
                1 => options.split(',').map(str::to_owned).collect(),
                _ => Vec::new(),
            };
            Some(Hierarchy {
                mount,
                controllers,
                version,
            })
        });
        Self { all: all.collect() }
    }

    /// The hierarchy that limits memory.
    fn of_memory(&self) -> Option<&Hierarchy> {
        let first = self
            .all
            .iter()
            .find(|hierarchy| hierarchy.controllers.iter().any(|name| name == "memory"));
        first.or_else(|| {
            self.all.iter().find(|hierarchy| {
                let listed = hierarchy.mount.join("cgroup.controllers");
                hierarchy.version == 2
                    && fs::read_to_string(listed)
                        .is_ok_and(|text| text.split_whitespace().any(|name| name == "memory"))
            })
        })
    }

    fn support(&self, own: &str, is_root: bool) -> Support {
        let Some(memory) = self.of_memory() else {
            return Support::None {
                reason: "this host mounts no cgroups that limit memory".to_owned(),
            };
        };
        let parent = if is_root {
            format!("/{TOP}")
        } else {
            match memory.version {
                2 => own_parent(own).unwrap_or_default(),
                _ => {
                    return Support::None {
                        reason: "the host's cgroups (version 1) are for root alone".to_owned(),
                    };
                }
            }
        };
        let folder = memory.mount.join(parent.trim_start_matches('/'));
        let can_use = if is_root {
            let made = fs::create_dir(&folder);
            made.is_ok() || folder.is_dir()
        } else {
            // A process moves only between groups whose common parent lets it.
            !parent.is_empty()
                && [folder.clone(), folder.join("cgroup.procs")]
                    .iter()
                    .all(|path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok())
        };
        if !can_use {
            return Support::None {
                reason: "you may not make groups in the host's cgroups".to_owned(),
            };
        }
        let swap_file = match memory.version {
            1 => "memory.memsw.limit_in_bytes",
            _ => "memory.swap.max",
        };
        Support::Limits {
            parent,
            can_limit_swap: folder.join(swap_file).exists(),
            version: memory.version,
        }
    }
}

/// The group above the caller's own in version 2, from its line of `/proc/self/cgroup`.
fn own_parent(own: &str) -> Option<String> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (parent, _) = path.rsplit_once('/')?;
    (!parent.is_empty()).then(|| parent.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
34 31 0:32 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
38 31 0:36 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn the_hybrid_layout_limits_by_version_1() {
        let hierarchies = Hierarchies::parse(HYBRID);
        assert_eq!(hierarchies.all.len(), 3);
        let memory = hierarchies.of_memory().unwrap();
        assert_eq!(memory.mount, Path::new("/sys/fs/cgroup/memory"));
        assert_eq!(memory.version, 1);
        let user = hierarchies.support("0::/user.slice/x", false);
        assert!(matches!(user, Support::None { reason } if reason.contains("root alone")));
    }

    #[test]
    fn a_users_groups_are_made_beside_its_own() {
        let own = "1:name=systemd:/x\n0::/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope\n";
        assert_eq!(
            own_parent(own).unwrap(),
            "/user.slice/user-1000.slice/user@1000.service/app.slice"
        );
        assert_eq!(own_parent("0::/"), None);
        assert_eq!(own_parent(""), None);
    }

    #[test]
    fn without_cgroups_there_are_no_limits_and_a_reason() {
        let none = Hierarchies::parse("1 2 3:4 / / rw - ext4 /dev/vda rw\n").support("", true);
        assert!(none.place("x").is_none());
        assert!(none.describe().contains("mounts no cgroups"));
    }

    #[test]
    fn removal_takes_groups_within_groups() {
        let top = tempfile::tempdir().unwrap();
        let group = top.path().join("space-x");
        fs::create_dir_all(group.join("a/b")).unwrap();
        remove_folder(&group);
        assert!(!group.exists() && top.path().exists());
        remove_folder(&group);
    }
}
