//! Everything that a command started, as one thing to signal and to end.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How many empty cgroups are kept for the next commands.
const MOST_SPARE: usize = 8;

/// Empty cgroups. Making and removing one costs milliseconds in an emulated machine, more than
/// everything else about a short command together.
static SPARE: Mutex<Vec<Folder>> = Mutex::new(Vec::new());

/// A cgroup of one command. Children cannot leave it by making a session of their own.
#[derive(Debug)]
pub(super) struct Cgroup(Option<Folder>);

/// A cgroup's folder and the files of it that every command needs.
#[derive(Debug)]
struct Folder {
    dir: PathBuf,
    entrance: File,
    events: File,
}

impl Cgroup {
    /// An empty group beneath `parent` (cgroup version 2).
    pub(super) fn take(parent: &Path) -> std::io::Result<Self> {
        let spare = {
            let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
            let found = spare
                .iter()
                .position(|folder| folder.dir.parent() == Some(parent));
            found.map(|index| spare.swap_remove(index))
        };
        Ok(Self(Some(match spare {
            Some(folder) => folder,
            None => Folder::create(parent)?,
        })))
    }

    /// The file through which a process enters.
    pub(super) fn entrance(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(|folder| folder.entrance.as_fd())
    }

    fn kill(&self) {
        if let Some(folder) = &self.0 {
            // Its only failure is that the group is gone, and with it everything in it.
            let _ = fs::write(folder.dir.join("cgroup.kill"), "1");
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let Some(folder) = self.0.take() else { return };
        if folder.is_empty() {
            let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
            if spare.len() < MOST_SPARE {
                spare.push(folder);
                return;
            }
        }
        // Fails while a job in the background lives on in it; an empty folder is all that stays.
        let _ = fs::remove_dir(&folder.dir);
    }
}

impl Folder {
    fn create(parent: &Path) -> std::io::Result<Self> {
        /// Makes names unique within this process.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("exec-{}-{number}", std::process::id()));
        fs::create_dir(&dir)?;
        let entrance = OpenOptions::new()
            .write(true)
            .open(dir.join("cgroup.procs"))?;
        let events = File::open(dir.join("cgroup.events"))?;
        Ok(Self {
            dir,
            entrance,
            events,
        })
    }

    /// Whether no process is in it. A group that cannot tell is not used again.
    fn is_empty(&self) -> bool {
        let mut text = [0; 64];
        self.events
            .read_at(&mut text, 0)
            .is_ok_and(|length| text[..length].starts_with(b"populated 0"))
    }
}

/// The process group of a command, its cgroup where it has one, and its descendants.
///
/// The leader must not be reaped before the last call: until then its number is its own.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    cgroup: Option<Cgroup>,
}

impl Group {
    pub(super) fn new(leader: Pid, cgroup: Option<Cgroup>) -> Self {
        Self { leader, cgroup }
    }

    /// Signals the process group; says whether there was anything to signal.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        kill_process_group(self.leader, signal).is_ok()
    }

    /// Children that left the process group, found while their parents still show whose they are.
    ///
    /// With a cgroup nobody can leave, and there is nothing to look for.
    pub(super) fn descendants(&self) -> Vec<Descendant> {
        match self.cgroup {
            Some(_) => Vec::new(),
            None => descendants(self.leader),
        }
    }

    /// Kills everything.
    pub(super) fn kill(&self, descendants: &[Descendant]) {
        let _ = kill_process_group(self.leader, Signal::KILL);
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
        for descendant in descendants {
            descendant.kill();
        }
    }
}

/// A process, told apart from a later one with the same number by its start time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Descendant {
    pid: Pid,
    started: u64,
}

impl Descendant {
    fn kill(&self) {
        if stat_of(self.pid).is_some_and(|stat| stat.started == self.started) {
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }
}

fn descendants(leader: Pid) -> Vec<Descendant> {
    let processes: Vec<_> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .filter_map(|pid| Some((pid, stat_of(pid)?)))
        .collect();
    let mut family = HashSet::from([leader.as_raw_nonzero().get()]);
    let mut found = Vec::new();
    loop {
        let before = found.len();
        for (pid, stat) in &processes {
            if family.contains(&stat.parent) && family.insert(pid.as_raw_nonzero().get()) {
                let started = stat.started;
                found.push(Descendant { pid: *pid, started });
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

struct Stat {
    parent: i32,
    started: u64,
}

fn stat_of(pid: Pid) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?)
}

/// Reads the fields behind the program's name, which may hold spaces and parentheses itself.
fn parse_stat(stat: &str) -> Option<Stat> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Some(Stat {
        parent: fields.nth(1)?.parse().ok()?,
        started: fields.nth(17)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_in_stat_does_not_confuse() {
        let stat = "7 (a) b 1 (c) S 42 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 12345 99";
        let stat = parse_stat(stat).unwrap();
        assert_eq!((stat.parent, stat.started), (42, 12345));
        assert!(parse_stat("").is_none());
    }

    #[test]
    fn children_are_descendants() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        let own = Pid::from_raw(std::process::id().cast_signed()).unwrap();
        let found = descendants(own);
        let found = found
            .iter()
            .find(|descendant| descendant.pid == pid)
            .unwrap();
        Descendant {
            started: found.started + 1,
            ..*found
        }
        .kill();
        assert!(child.try_wait().unwrap().is_none());
        found.kill();
        assert!(!child.wait().unwrap().success());
    }
}
