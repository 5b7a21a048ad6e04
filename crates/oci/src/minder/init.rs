//! The first process of a Space's processes, on the host's side of the wall.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, wait};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::mounts::Stage;
use super::plan::{Event, Plan, send};
use super::{MinderError, network, start};

/// Dies when the parent does, from now on or already.
pub(super) fn die_with_parent(mut parent: UnixStream) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    parent.write_all(b"!")?;
    // Ends with an error if the parent was gone before the signal was asked for.
    parent.read_exact(&mut [0])
}

/// The parent's part of [`die_with_parent`].
pub(super) fn reassure_child(mut child: &UnixStream) -> io::Result<()> {
    child.read_exact(&mut [0])?;
    child.write_all(b"!")
}

/// Starts the container, waits for its end and reports both.
pub(super) fn run(socket: &UnixStream, plan: &Plan) -> ExitCode {
    let container = match boot(socket, plan) {
        Ok(container) => container,
        Err(error) => {
            let _ = send(socket, &error.event(), None);
            return ExitCode::FAILURE;
        }
    };
    if send(socket, &Event::Started, None).is_err() {
        return ExitCode::FAILURE;
    }
    let (how, code) = match wait_for(container) {
        Some(status) => match (status.exit_status(), status.terminating_signal()) {
            (Some(0), _) => ("guestd ended".to_owned(), ExitCode::SUCCESS),
            (Some(code), _) => (format!("guestd ended with code {code}"), ExitCode::FAILURE),
            (None, Some(signal)) => (
                format!("guestd was killed by signal {signal}"),
                ExitCode::FAILURE,
            ),
            (None, None) => ("guestd is gone".to_owned(), ExitCode::FAILURE),
        },
        None => ("guestd is gone".to_owned(), ExitCode::FAILURE),
    };
    let _ = send(socket, &Event::Ended { how }, None);
    code
}

fn boot(socket: &UnixStream, plan: &Plan) -> Result<Pid, MinderError> {
    let stage = Stage::set(plan)?;
    if let Some(because) = &stage.copied {
        let because = because.clone();
        send(socket, &Event::Copied { because }, None).map_err(MinderError::host("report"))?;
    }
    airlock_netlink::set_up_loopback()?;
    network::allow_ordinary_use(plan);
    if let Some(net) = &plan.network {
        let tap = network::make_interface(net)?;
        send(
            socket,
            &Event::Network,
            Some(std::os::fd::AsFd::as_fd(&tap)),
        )
        .map_err(MinderError::host("report"))?;
    }
    let container = start::start(plan, &stage)?;
    // What is left to do needs none, and nothing of the container ever reaches this process.
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none)
        .map_err(|errno| MinderError::host("give up capabilities")(errno.into()))?;
    Ok(container)
}

/// Buries every process of the pid namespace until `container` is among them.
fn wait_for(container: Pid) -> Option<WaitStatus> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == container => return Some(status),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}
