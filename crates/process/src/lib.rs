//! Runs a helper program (QEMU, passt, an OCI runtime) that dies with this process, inherits exactly the
//! descriptors it was given, and may run as another user.
//!
//! The kernel ties "dies with its parent" to the parent's *thread*: when the thread that called
//! [`spawn`] ends, the child is killed even though the process lives on. So call it from the
//! main thread or a worker of the runtime, never from `spawn_blocking` or a short-lived thread.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use tokio::net::UnixStream;
use tokio::process::{Child, Command};

mod child;
mod find;

pub use find::{FindError, find};

/// Descriptors that a child inherits. Each keeps its number, so two can never collide.
#[derive(Debug, Default)]
pub struct InheritedFds(Vec<OwnedFd>);

impl InheritedFds {
    /// No descriptors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `fd` and returns its number in the child.
    pub fn add(&mut self, fd: impl Into<OwnedFd>) -> RawFd {
        let fd = fd.into();
        let number = fd.as_raw_fd();
        self.0.push(fd);
        number
    }

    fn numbers(&self) -> Vec<RawFd> {
        self.0.iter().map(AsRawFd::as_raw_fd).collect()
    }
}

/// A connected pair: ours, which does not block, and the child's to inherit.
pub fn socket_pair() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, theirs.into()))
}

/// The user that a child runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAs {
    /// User id.
    pub uid: u32,
    /// Group id. All other groups are dropped.
    pub gid: u32,
}

impl RunAs {
    /// The user for a VM: `None` (stay) unless this process is root, else `nobody`.
    ///
    /// The group is the one that may open `/dev/kvm`, where there is such a group, because QEMU
    /// has no way to be handed that device.
    pub fn for_vm() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let (uid, nogroup) = nobody(&fs_err::read_to_string("/etc/passwd").unwrap_or_default());
        Some(Self {
            uid,
            gid: kvm_group(Path::new("/dev/kvm")).unwrap_or(nogroup),
        })
    }
}

impl RunAs {
    /// The user for passt: `None` (stay) unless this process is root, else `nobody`.
    pub fn for_passt() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let (uid, gid) = nobody(&fs_err::read_to_string("/etc/passwd").unwrap_or_default());
        Some(Self { uid, gid })
    }
}

/// The ids of `nobody`; every Linux system uses 65534 where the file does not say.
fn nobody(passwd: &str) -> (u32, u32) {
    const DEFAULT: (u32, u32) = (65534, 65534);
    passwd
        .lines()
        .find_map(|line| {
            let mut fields = line.strip_prefix("nobody:")?.split(':').skip(1);
            Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
        })
        .filter(|ids: &(u32, u32)| ids.0 != 0 && ids.1 != 0)
        .unwrap_or(DEFAULT)
}

fn kvm_group(device: &Path) -> Option<u32> {
    let metadata = fs_err::metadata(device).ok()?;
    let group_may_use = metadata.mode() & 0o060 == 0o060;
    (group_may_use && metadata.gid() != 0).then(|| metadata.gid())
}

/// What to run.
#[derive(Debug)]
pub struct SpawnRequest {
    /// The program.
    pub binary: PathBuf,
    /// Its arguments, without its name.
    pub argv: Vec<OsString>,
    /// The descriptors it inherits besides stdin, stdout and stderr.
    pub inherited: InheritedFds,
    /// The user it runs as; `None` keeps this process's.
    pub run_as: Option<RunAs>,
    /// Takes its stdout and stderr; `None` discards them.
    pub log: Option<File>,
}

/// Why a program did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The log could not be shared between stdout and stderr.
    #[error("cannot duplicate the log of {binary}")]
    Log {
        /// The program.
        binary: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The program could not be started.
    #[error("cannot start {binary}")]
    Start {
        /// The program.
        binary: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The program was gone before its start time could be read.
    #[error("{binary} (pid {pid}) vanished at once")]
    Vanished {
        /// The program.
        binary: PathBuf,
        /// Its process id.
        pid: u32,
        /// Why.
        source: io::Error,
    },
}

/// A running child. Dropping it kills it.
#[derive(Debug)]
pub struct VmProcess {
    child: Child,
    pid: u32,
    start_time: u64,
}

impl VmProcess {
    /// Its process id.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// When it started, in clock ticks since the host's boot: with the pid, a name that no other
    /// process ever has.
    pub const fn start_time(&self) -> u64 {
        self.start_time
    }

    /// Waits until it ends. Safe to cancel and to call again.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Its exit status if it has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Kills it with SIGKILL and waits. QEMU may spin in the kernel's arms and ignore anything
    /// gentler. No error when it has ended already.
    pub async fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.start_kill()?;
        self.child.wait().await
    }
}

/// Starts the program. See the module's note on the calling thread.
///
/// The child has a session of its own (no terminal, no signals from the caller's group),
/// `/dev/null` as stdin, `/` as folder, and no environment but `PATH`.
pub fn spawn(request: SpawnRequest) -> Result<VmProcess, SpawnError> {
    let SpawnRequest {
        binary,
        argv,
        inherited,
        run_as,
        log,
    } = request;
    let (stdout, stderr) = match log {
        Some(log) => {
            let twin = log.try_clone().map_err(|source| SpawnError::Log {
                binary: binary.clone(),
                source,
            })?;
            (Stdio::from(log), Stdio::from(twin))
        }
        None => (Stdio::null(), Stdio::null()),
    };
    let mut command = Command::new(&binary);
    command
        .args(argv)
        .current_dir("/")
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .kill_on_drop(true);
    if let Some(RunAs { uid, gid }) = run_as {
        // Drops the supplementary groups as well, before the hook below runs.
        command.gid(gid).uid(uid);
    }
    child::prepare(&mut command, inherited.numbers());
    let child = command.spawn().map_err(|source| SpawnError::Start {
        binary: binary.clone(),
        source,
    })?;
    drop(inherited);
    // The child is not reaped yet, so it has a pid and an entry in /proc even if it has ended.
    let pid = child.id().unwrap_or_default();
    let start_time = start_time(pid).map_err(|source| SpawnError::Vanished {
        binary,
        pid,
        source,
    })?;
    Ok(VmProcess {
        child,
        pid,
        start_time,
    })
}

/// When process `pid` started, in clock ticks since the host's boot.
pub fn start_time(pid: u32) -> io::Result<u64> {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_start_time(&stat)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no start time in its stat"))
}

/// Whether the process that had `pid` and `start_time` still runs (a zombie does not).
pub fn is_running(pid: u32, expected_start_time: u64) -> bool {
    let Ok(stat) = fs_err::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let state = after_name(&stat).and_then(|rest| rest.split(' ').next());
    parse_start_time(&stat) == Some(expected_start_time) && !matches!(state, Some("Z" | "X"))
}

/// Field 22 of `/proc/<pid>/stat`; see proc(5).
fn parse_start_time(stat: &str) -> Option<u64> {
    after_name(stat)?.split(' ').nth(19)?.parse().ok()
}

/// What follows the program's name, which may itself hold spaces and parentheses.
fn after_name(stat: &str) -> Option<&str> {
    Some(stat.rsplit_once(')')?.1.trim_start())
}

#[cfg(test)]
mod tests;
