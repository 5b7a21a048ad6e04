//! Starting the container with the OCI runtime.

use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fs_err as fs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::MinderError;
use super::mounts::Stage;
use super::plan::Plan;
use crate::sys;
use crate::{ContainerConfig, Zero, build};

/// The container's only name in the runtime's private state.
const ID: &str = "space";
/// The first descriptor that a runtime can pass on.
const FIRST_PASSED: RawFd = 3;
/// guestd's own program among the descriptors passed on.
const GUESTD: RawFd = 5;
/// This process's descriptors are moved from here on, so that the places below are free.
const OUT_OF_THE_WAY: RawFd = 64;
/// Longest time that a runtime may take: they take 0.05 s, on a busy host a few times more.
const RUNTIME_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest `/etc/passwd` that a runtime is given to read.
const MAX_USER_FILE_BYTES: i64 = 4 * 1024 * 1024;
/// How much of the runtime's log an error shows.
const LOG_TAIL_BYTES: usize = 600;

/// Starts the container; returns its first process.
pub(super) fn start(plan: &Plan, stage: &Stage) -> Result<Pid, MinderError> {
    let host = MinderError::host;
    check_user_files(stage)?;
    let config = build(&config(plan, stage))?;
    let file = stage.bundle().join("config.json");
    config.save(&file).map_err(|error| {
        host("write the container's configuration")(std::io::Error::other(error))
    })?;
    // Placed in this order: lane, listener, guestd, as guestd expects them.
    let fds = [plan.fds.lane, plan.fds.listener, plan.fds.guestd].map(out_of_the_way);
    let console = out_of_the_way(plan.fds.console).map_err(host("share descriptors"))?;
    let mut passed = Vec::new();
    for (number, fd) in (FIRST_PASSED..).zip(fds) {
        let fd = fd.map_err(host("share descriptors"))?;
        passed.push(sys::place(&fd, number).map_err(host("share descriptors"))?);
    }
    // Not /dev/null: one runtime (crun 1.8) gives what it finds there to the Space's root, and that
    // would be the host's device.
    let (nothing, _) = std::io::pipe().map_err(host("make a pipe"))?;
    let twin = console.try_clone().map_err(host("share descriptors"))?;
    let mut runtime = Command::new(&plan.runtime)
        .arg("--root")
        .arg(stage.state())
        .arg("--log")
        .arg(stage.log())
        .args(["--log-format", "json", "run", "--detach", "--preserve-fds"])
        .arg(passed.len().to_string())
        .arg("--pid-file")
        .arg(stage.pid_file())
        .arg("--bundle")
        .arg(stage.bundle())
        .arg(ID)
        .current_dir("/")
        .stdin(Stdio::from(nothing))
        .stdout(Stdio::from(console))
        .stderr(Stdio::from(twin))
        .spawn()
        .map_err(host("run the OCI runtime"))?;
    if !ends_in_time(&runtime).map_err(host("wait for the OCI runtime"))? {
        // What it started dies with this process.
        return Err(MinderError::RuntimeHangs {
            runtime: plan.runtime.display().to_string(),
            seconds: RUNTIME_TIMEOUT.as_secs(),
        });
    }
    let status = runtime.wait().map_err(host("wait for the OCI runtime"))?;
    drop(passed);
    let pid = fs::read_to_string(stage.pid_file())
        .ok()
        .and_then(|text| Pid::from_raw(text.trim().parse().ok()?));
    match pid {
        Some(pid) if status.success() => Ok(pid),
        Some(_) | None => Err(MinderError::Runtime {
            runtime: plan.runtime.display().to_string(),
            log: log_tail(stage),
            refused: status.code().is_some(),
        }),
    }
}

/// Waits for the runtime's end; says whether that came within [`RUNTIME_TIMEOUT`].
fn ends_in_time(runtime: &Child) -> std::io::Result<bool> {
    let ended = pidfd_open(Pid::from_child(runtime), PidfdFlags::empty())?;
    let deadline = Instant::now() + RUNTIME_TIMEOUT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(std::io::Error::other)?;
        match poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Refuses a root in which the files that a runtime reads itself, as the host's root, are none: it
/// would wait for a pipe or read a device without an end.
fn check_user_files(stage: &Stage) -> Result<(), MinderError> {
    for path in ["/etc/passwd", "/etc/group"] {
        let root = rustix::fs::open(
            stage.root(),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|errno| MinderError::host("open the Space's root folder")(errno.into()))?;
        let found = rustix::fs::openat2(
            &root,
            path,
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        );
        let Ok(file) = found else {
            // Without one, a runtime takes the numbers as they are. A link may lead somewhere once
            // the runtime has mounted more.
            match rustix::fs::statat(&root, &path[1..], AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                Ok(_) | Err(_) => return Err(MinderError::BrokenFile { path }),
            }
        };
        let usual = rustix::fs::fstat(&file).is_ok_and(|stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                && stat.st_size <= MAX_USER_FILE_BYTES
        });
        if !usual {
            return Err(MinderError::BrokenFile { path });
        }
    }
    Ok(())
}

/// Takes over an inherited descriptor, under a high number and for this process alone.
pub(super) fn out_of_the_way(number: RawFd) -> std::io::Result<OwnedFd> {
    let fd = sys::inherited(number);
    Ok(rustix::io::fcntl_dupfd_cloexec(&fd, OUT_OF_THE_WAY)?)
}

fn config(plan: &Plan, stage: &Stage) -> ContainerConfig {
    ContainerConfig {
        hostname: plan.hostname.clone(),
        // From memory: no file of the host is in the Space, and none that it could write to.
        args: vec![format!("/proc/self/fd/{GUESTD}"), "container".to_owned()],
        env: plan.env.clone(),
        rootfs: stage.root(),
        zero: if plan.ids.needs_user_namespace() {
            Zero::User
        } else {
            Zero::HostRoot
        },
        uid_map: plan.ids.inner(),
        gid_map: plan.ids.inner(),
        // The runtime is in it, as is everything here.
        netns: Some(PathBuf::from("/proc/self/ns/net")),
        sysfs: Some(stage.sysfs()),
        cgroup: plan.cgroup.clone(),
        cgroup_mount: plan.cgroup_mount,
        mounts: Vec::new(),
        host_cpus: plan.host_cpus,
        open_files: plan.open_files,
    }
}

/// The messages of the runtime's log, one JSON object a line.
fn log_tail(stage: &Stage) -> String {
    let text = fs::read_to_string(stage.log()).unwrap_or_default();
    let messages: Vec<String> = text
        .lines()
        .filter_map(|line| {
            let entry: serde_json::Value = serde_json::from_str(line).ok()?;
            Some(entry.get("msg")?.as_str()?.trim().to_owned())
        })
        .collect();
    let joined = messages.join("; ");
    if joined.is_empty() {
        return "it gave no reason".to_owned();
    }
    let from = joined.len().saturating_sub(LOG_TAIL_BYTES);
    let from = (from..joined.len())
        .find(|at| joined.is_char_boundary(*at))
        .unwrap_or_default();
    joined[from..].to_owned()
}
