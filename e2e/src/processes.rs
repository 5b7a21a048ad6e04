//! The host's processes as `/proc` shows them, and what a Space must not leave behind.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rustix::process::{Pid, Signal};

use crate::{is_alive, wait_until};

/// What network interfaces the host had before any test made a Space.
static INTERFACES: LazyLock<BTreeSet<String>> = LazyLock::new(interfaces);

/// A process, by pid and the tick it was started at: pids come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its pid.
    pub pid: u64,
    start_ticks: u64,
}

impl Process {
    /// The process that has `pid` now.
    pub fn of(pid: u64) -> Option<Self> {
        let start_ticks = stat_field(pid, 19)?;
        Some(Self { pid, start_ticks })
    }

    /// Whether it lives still; a zombie does not.
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self) && is_alive(self.pid)
    }
}

/// A number of `/proc/PID/stat`, counted from the field after the name (proc(5)).
fn stat_field(pid: u64, index: usize) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(") ")?;
    after.split(' ').nth(index)?.parse().ok()
}

/// Every process of the host.
pub fn all_pids() -> Vec<u64> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The children of `pid`.
pub fn children(pid: u64) -> Vec<u64> {
    let is_child = |other: &u64| stat_field(*other, 1) == Some(pid);
    all_pids().into_iter().filter(is_child).collect()
}

/// `pid` and all that came from it, each after its parent.
pub fn family(pid: u64) -> Vec<u64> {
    // One look at all: a Space may have thousands.
    let mut children: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for other in all_pids() {
        if let Some(parent) = stat_field(other, 1) {
            children.entry(parent).or_default().push(other);
        }
    }
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(parent) = all.get(next) {
        all.extend(children.remove(parent).unwrap_or_default());
        next += 1;
    }
    all
}

/// Kills a process at once.
///
/// # Panics
/// When there is none of that pid.
pub fn kill9(pid: u64) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    rustix::process::kill_process(pid, Signal::KILL).expect("the process runs");
}

fn interfaces() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten();
    entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// What a Space has on the host while it lives.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    dir: PathBuf,
    machine_id: Option<String>,
    processes: BTreeSet<Process>,
}

impl Traces {
    /// Adds what the Space with the folder `dir` has now.
    pub(crate) fn add(&mut self, dir: &Path) {
        LazyLock::force(&INTERFACES);
        dir.clone_into(&mut self.dir);
        let json = |name: &str| -> Option<serde_json::Value> {
            serde_json::from_slice(&std::fs::read(dir.join(name)).ok()?).ok()
        };
        if let Some(spec) = json("spec.json") {
            self.machine_id = spec["machine_id"].as_str().map(str::to_owned);
        }
        let Some(state) = json("state.json") else {
            return;
        };
        for what in ["keeper", "machine"] {
            let pid = state[what]["pid"].as_u64();
            let same = |pid: &u64| stat_field(*pid, 19) == state[what]["start_ticks"].as_u64();
            if let Some(pid) = pid.filter(same) {
                self.processes
                    .extend(family(pid).into_iter().filter_map(Process::of));
            }
        }
    }

    /// Waits until processes, groups and mounts are gone, and asserts that no interface came.
    pub(crate) fn assert_gone(&self) {
        let seen = || -> Vec<Process> {
            let alive = self.processes.iter().copied();
            alive.filter(|process| process.is_alive()).collect()
        };
        assert!(
            settled(|| seen().is_empty()),
            "processes live on: {:?}",
            seen()
                .into_iter()
                .map(|p| describe(p.pid))
                .collect::<Vec<_>>()
        );
        if let Some(id) = &self.machine_id {
            let group = format!("space-{id}");
            let in_group = |pid: &u64| {
                std::fs::read_to_string(format!("/proc/{pid}/cgroup"))
                    .is_ok_and(|text| text.contains(&group))
            };
            let left = || -> Vec<u64> { all_pids().into_iter().filter(in_group).collect() };
            assert!(
                settled(|| left().is_empty()),
                "processes of the group live on: {:?}",
                left().into_iter().map(describe).collect::<Vec<_>>()
            );
            assert!(
                settled(|| groups(&group).is_empty()),
                "groups stay: {:?}",
                groups(&group)
            );
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let dir = self.dir.to_string_lossy();
        let ours = |line: &&str| line.contains(&*dir) || line.contains(" airlock ");
        let left: Vec<&str> = mounts.lines().filter(ours).collect();
        assert!(left.is_empty(), "mounts stay: {left:?}");
        let new: Vec<String> = interfaces().difference(&INTERFACES).cloned().collect();
        assert!(new.is_empty(), "network interfaces stay: {new:?}");
    }
}

/// The kernel buries processes and empties groups a moment after they were killed.
fn settled(condition: impl Fn() -> bool) -> bool {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(2);
    while !condition() {
        if std::time::Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    true
}

fn describe(pid: u64) -> String {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    format!(
        "{pid}: {}",
        String::from_utf8_lossy(&words).replace('\0', " ")
    )
}

/// The folders called `name` in the cgroup hierarchies, two levels deep.
fn groups(name: &str) -> Vec<PathBuf> {
    let list = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let hierarchies = list(Path::new("/sys/fs/cgroup"));
    let top = PathBuf::from("/sys/fs/cgroup");
    hierarchies
        .into_iter()
        .chain([top])
        .map(|hierarchy| hierarchy.join("airlock").join(name))
        .filter(|group| group.exists())
        .collect()
}

/// Waits until all of `processes` are gone.
///
/// # Panics
/// When one lives on.
pub fn wait_for_end(what: &str, processes: &[Process]) {
    wait_until(what, || !processes.iter().any(|process| process.is_alive()));
}
