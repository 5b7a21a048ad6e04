//! The network namespace of a Space, set from outside: nothing in the Space may change it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use airlock_model::NetConfig;
use airlock_netlink::Interface;
use rustix::fs::{CWD, Mode, OFlags};

use super::MinderError;
use super::plan::Plan;
use crate::sys;

/// The name that programs expect.
const INTERFACE: &str = "eth0";
/// Makes interfaces that a program reads and writes.
const DEVICE: &str = "/dev/net/tun";

/// Lets programs ping without raw sockets and serve on any port.
///
/// Where the kernel has no such setting, there is nothing to allow.
pub(super) fn allow_ordinary_use(plan: &Plan) {
    let ids = plan.ids.inner();
    if let Some(run) = ids.first() {
        let last = run.outside + (run.count - 1);
        let groups = format!("{} {last}", run.outside);
        let _ = fs::write("/proc/sys/net/ipv4/ping_group_range", groups);
    }
    let _ = fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
}

/// Makes and sets the interface; what is written to the descriptor arrives there as a frame.
pub(super) fn make_interface(net: &NetConfig) -> Result<OwnedFd, MinderError> {
    let forbidden = |source: io::Error| MinderError::Forbidden {
        what: "make a network interface",
        hint: "the data network needs /dev/net/tun, readable and writable for you; \
               --network none needs nothing",
        source,
    };
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::openat(CWD, DEVICE, flags, Mode::empty())
        .map_err(|errno| forbidden(errno.into()))?;
    sys::make_tap(&device, INTERFACE).map_err(forbidden)?;
    Interface::named(INTERFACE)?.set(net)?;
    Ok(device)
}
