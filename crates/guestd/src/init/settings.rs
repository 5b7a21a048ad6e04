//! What the first process hands to the serving process, and its receiving end.
//!
//! The settings hold the token, so they travel in an anonymous file whose descriptor alone the
//! serving process inherits; arguments and environment can be read by others.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use airlock_lane::LaneDevice;
use airlock_model::BootConfig;
use rustix::fs::{MemfdFlags, OFlags};
use rustix::io::FdFlags;
use serde::{Deserialize, Serialize};

use super::kernel::COMMAND_CGROUP;
use super::supervise::exit_code;
use crate::console::{Causes, say};
use crate::server::{AccessConfig, Config, Listen, Role, Token};
use crate::sys::inherited::adopt;

/// The most that settings may take, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// The settings in their file, and the lane's descriptor that they name.
pub(super) struct Settings {
    file: OwnedFd,
    /// Held open so that they can be inherited again after a restart.
    _held: Vec<OwnedFd>,
}

#[derive(Serialize, Deserialize)]
struct Content {
    token: String,
    listen: Where,
    lane_fd: RawFd,
    cgroup: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Where {
    Address(SocketAddr),
    /// The descriptor of a listening unix socket.
    Socket(RawFd),
}

/// Opens the lane once more, for the serving process to inherit.
pub(super) fn open_lane(device: &Path) -> io::Result<OwnedFd> {
    let lane = File::options()
        .read(true)
        .write(true)
        .custom_flags(OFlags::DIRECT.bits().cast_signed())
        .open(device)?;
    rustix::io::fcntl_setfd(&lane, FdFlags::empty())?;
    Ok(lane.into())
}

impl Settings {
    /// Settings of a machine, which listens on its own network.
    pub(super) fn of_machine(
        config: &BootConfig,
        listen: SocketAddr,
        lane: OwnedFd,
    ) -> io::Result<Self> {
        Self::new(config, Where::Address(listen), lane, Vec::new())
    }

    /// Settings of a container, which inherited the socket that it listens on.
    pub(super) fn of_container(
        config: &BootConfig,
        listener: OwnedFd,
        lane: OwnedFd,
    ) -> io::Result<Self> {
        for fd in [&listener, &lane] {
            rustix::io::fcntl_setfd(fd, FdFlags::empty())?;
        }
        let listen = Where::Socket(listener.as_raw_fd());
        Self::new(config, listen, lane, vec![listener])
    }

    fn new(
        config: &BootConfig,
        listen: Where,
        lane: OwnedFd,
        mut held: Vec<OwnedFd>,
    ) -> io::Result<Self> {
        let content = Content {
            token: config.token.clone(),
            listen,
            lane_fd: lane.as_raw_fd(),
            cgroup: COMMAND_CGROUP.into(),
        };
        held.push(lane);
        // Without CLOEXEC: the first process starts nothing but the serving process.
        let file = rustix::fs::memfd_create("airlock-settings", MemfdFlags::empty())?;
        File::from(file.try_clone()?).write_all(&serde_json::to_vec(&content)?)?;
        Ok(Self { file, _held: held })
    }

    /// Number of the descriptor that the serving process finds the settings in.
    pub(super) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Serves with the settings in descriptor `settings`, as the child of the first process.
pub fn serve_child(settings: RawFd) -> ExitCode {
    crate::sys::signals::let_through();
    let config = match receive(settings) {
        Ok(config) => config,
        Err(error) => {
            say(format_args!(
                "the settings cannot be used: {}",
                Causes(&error)
            ));
            return ExitCode::FAILURE;
        }
    };
    match crate::serve::run(config, |_| {
        say("ready");
        make_ssh_host_keys();
    }) {
        Ok(ending) => exit_code(ending),
        Err(error) => {
            say(Causes(&error));
            ExitCode::FAILURE
        }
    }
}

fn receive(settings: RawFd) -> io::Result<Config> {
    let file = File::from(adopt(settings)?);
    let mut bytes = vec![0; MAX_BYTES];
    // From the start, wherever an earlier reader of the shared descriptor stopped.
    let read = file.read_at(&mut bytes, 0)?;
    let content: Content = serde_json::from_slice(&bytes[..read])?;
    let lane = File::from(adopt(content.lane_fd)?);
    let lane =
        LaneDevice::adopt(lane, Path::new("the inherited lane")).map_err(io::Error::other)?;
    let token = Token::new(&content.token).map_err(io::Error::other)?;
    let (listen, role) = match content.listen {
        Where::Address(address) => (Listen::Address(address), Role::Machine),
        Where::Socket(fd) => (Listen::Inherited(adopt(fd)?.into()), Role::Container),
    };
    Ok(Config {
        listen,
        access: AccessConfig::Token(token),
        role,
        cgroup: content.cgroup.is_dir().then_some(content.cgroup),
        lane: Some(lane),
    })
}

/// Makes the host keys that an SSH server needs, once per Space and after guestd answers.
///
/// No RSA key: finding its primes keeps a CPU busy for many seconds under emulation, just when
/// the Space is first used, and clients take the others as well.
fn make_ssh_host_keys() {
    if !Path::new("/usr/bin/ssh-keygen").exists() || !Path::new("/usr/sbin/sshd").exists() {
        return;
    }
    // A thread of its own, since all it does is wait.
    std::thread::spawn(|| {
        for kind in ["ed25519", "ecdsa"] {
            let file = format!("/etc/ssh/ssh_host_{kind}_key");
            if Path::new(&file).exists() {
                continue;
            }
            let made = Command::new("/usr/bin/ssh-keygen")
                .args(["-q", "-N", "", "-t", kind, "-f", &file])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .status();
            if !made.as_ref().is_ok_and(std::process::ExitStatus::success) {
                say(format_args!("no {file}: {made:?}"));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_reach_the_other_side_twice() {
        let dir = tempfile::tempdir().unwrap();
        let lane = dir.path().join("lane");
        let bytes = airlock_model::LaneGeometry::STANDARD.total_bytes();
        File::create(&lane).unwrap().set_len(bytes).unwrap();
        let content = Content {
            token: "t0ken".to_owned(),
            listen: Where::Address(SocketAddr::from(([127, 0, 0, 1], 3211))),
            lane_fd: 0,
            cgroup: "/does/not/exist".into(),
        };
        for _ in 0..2 {
            let lane = OwnedFd::from(File::options().read(true).write(true).open(&lane).unwrap());
            let file = rustix::fs::memfd_create("test", MemfdFlags::empty()).unwrap();
            let content = Content {
                lane_fd: std::os::fd::IntoRawFd::into_raw_fd(lane),
                token: content.token.clone(),
                listen: content.listen.clone(),
                cgroup: content.cgroup.clone(),
            };
            let json = serde_json::to_vec(&content).unwrap();
            let file = File::from(file);
            (&file).write_all(&json).unwrap();
            let config = receive(std::os::fd::IntoRawFd::into_raw_fd(file)).unwrap();
            assert!(matches!(config.listen, Listen::Address(address) if address.port() == 3211));
            assert!(config.lane.is_some() && config.cgroup.is_none());
        }
    }
}
