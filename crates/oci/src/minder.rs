//! The process between the keeper and a container.
//!
//! It makes the namespaces in which an OCI runtime works for one Space, so that nothing of the
//! Space outlives it and nothing of it shows on the host:
//!
//! ```text
//! keeper
//!   └ minder            dies with the keeper; in Spaces of ordinary users, root of a user namespace
//!       └ minder (1)    first process of a pid namespace; own mounts and network
//!           ├ runc run  ends at once
//!           └ guestd    first process of the container's own namespaces
//! ```
//!
//! When the second one is killed, the kernel ends every process of the Space, whatever that does:
//! the Space cannot reach a process outside its pid namespace. Overlay, sysfs, configuration and
//! the runtime's state live in a private mount namespace and end with it.

mod init;
mod mounts;
mod network;
pub mod plan;
mod start;

use std::io;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::UnshareFlags;

pub use plan::{Event, Fds, Mapped, Plan};

use crate::sys::{self, Forked};
use crate::userns;
use plan::{receive, send};

/// Why there is no container.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MinderError {
    #[error("cannot {what}")]
    Host {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("the host does not let Airlock {what}")]
    Forbidden {
        what: &'static str,
        hint: &'static str,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    UserNamespace(#[from] userns::EnterError),
    #[error("cannot set the network")]
    Network(#[from] airlock_netlink::NetworkError),
    #[error(
        "the Space's own {path} is no regular file of a usual size, and every OCI runtime reads it"
    )]
    BrokenFile { path: &'static str },
    #[error("{runtime} did not start the container within {seconds} s")]
    RuntimeHangs { runtime: String, seconds: u64 },
    #[error("the container cannot be described")]
    Config(#[from] crate::ConfigError),
    #[error("{runtime} did not start the container: {log}")]
    Runtime {
        runtime: String,
        log: String,
        /// It said no by itself, rather than being killed.
        refused: bool,
    },
}

impl MinderError {
    pub(crate) fn host(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Host { what, source }
    }

    fn event(&self) -> Event {
        let mut message = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            message.push_str(": ");
            message.push_str(&error.to_string());
            source = error.source();
        }
        let (unsupported, hint) = match self {
            Self::Host { .. } | Self::Network(_) | Self::Config(_) | Self::RuntimeHangs { .. } => {
                (false, "")
            }
            Self::BrokenFile { .. } => (
                false,
                "what the Space changed is in the folder `upper` of its own, under AIRLOCK_HOME",
            ),
            Self::Forbidden { hint, .. } => (true, *hint),
            Self::UserNamespace(error) => (true, error.hint()),
            Self::Runtime { refused, .. } => {
                (*refused, "`airlock doctor` says which runtimes are here")
            }
        };
        Event::Failed {
            unsupported,
            message,
            hint: hint.to_owned(),
        }
    }
}

/// The program of a minder: takes the number of the socket on which it gets a [`Plan`] and reports
/// [`Event`]s. Returns when the container has ended, with 0 if it ended as it wanted to.
///
/// Must be called first thing in `main`, before any thread is started.
pub fn main(socket: RawFd) -> ExitCode {
    // Out of the way of the numbers that a runtime passes on.
    let Ok(socket) = start::out_of_the_way(socket) else {
        return ExitCode::FAILURE;
    };
    let socket = UnixStream::from(socket);
    match run(&socket) {
        Ok(code) => code,
        Err(error) => {
            // If nobody listens, nobody waits.
            let _ = send(&socket, &error.event(), None);
            ExitCode::FAILURE
        }
    }
}

fn run(socket: &UnixStream) -> Result<ExitCode, MinderError> {
    let host = MinderError::host;
    let plan: Plan = receive(socket).map_err(host("read the plan"))?;
    if plan.ids.needs_user_namespace() {
        userns::enter(|| {
            send(socket, &Event::WantsIds, None)?;
            receive::<Mapped>(socket).map(|Mapped {}| ())
        })?;
    }
    let all = UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWNET;
    sys::unshare(all).map_err(|source| MinderError::Forbidden {
        what: "make namespaces",
        hint: "a container inside a container needs its host's permission; --kind vm needs none",
        source,
    })?;
    let (ours, theirs) = UnixStream::pair().map_err(host("make a socket pair"))?;
    match sys::fork().map_err(host("start a process"))? {
        Forked::Child => {
            drop(ours);
            // The parent may be gone already, and its death signal missed: it says that it is not.
            init::die_with_parent(theirs).map_err(host("follow the parent"))?;
            Ok(init::run(socket, &plan))
        }
        Forked::Parent(child) => {
            drop(theirs);
            let pid = child.as_raw_nonzero().get().cast_unsigned();
            send(socket, &Event::Forked { pid }, None).map_err(host("report"))?;
            init::reassure_child(&ours).map_err(host("start a process"))?;
            Ok(wait_for(child))
        }
    }
}

fn wait_for(child: Pid) -> ExitCode {
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Ok(Some((_, status))) if status.exit_status() == Some(0) => return ExitCode::SUCCESS,
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => return ExitCode::FAILURE,
        }
    }
}
