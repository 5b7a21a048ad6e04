//! The data network: passt behind the wall.
//!
//! passt turns the guest's packets into ordinary sockets of an unprivileged host process, so it
//! needs no rights and no bridge. Addresses are fixed and the same for every Space: each Space
//! has a passt of its own, so nothing can collide, and guestd needs no DHCP.
//!
//! passt alone does not keep a hostile guest off the host's loopback; [`crate::wall`] does.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use airlock_model::NetConfig;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use airlock_process::{
    self as process, FindError, InheritedFds, RunAs, SpawnError, SpawnRequest, VmProcess,
};

use crate::tap;
use crate::wall::{self, WallError};

mod host;

pub use host::HostNetwork;

/// The guest's address. A /30 of a private range hides no more than four addresses of a LAN.
pub const GUEST_V4: &str = "10.193.194.2";
/// The IPv4 gateway that the guest sees; passt itself.
pub const GATEWAY_V4: &str = "10.193.194.1";
/// Prefix length of the guest's IPv4 network.
pub const PREFIX_V4: u8 = 30;
/// The guest's IPv6 address, in a private range.
pub const GUEST_V6: &str = "fd41:6972:6c6f:636b::2";
/// The IPv6 gateway that the guest sees.
pub const GATEWAY_V6: &str = "fd41:6972:6c6f:636b::1";
/// Prefix length of the guest's IPv6 network.
pub const PREFIX_V6: u8 = 64;
/// The largest packet that passt takes. TCP ends in passt, so the size out there does not
/// matter, and few large packets cost a guest much less than many small ones.
pub const MTU: u32 = 65520;

/// Environment variable that names the passt program to use.
pub const PASST_VARIABLE: &str = "AIRLOCK_PASST";
/// How to get passt.
const PACKAGES: &str = "install passt: Debian 12, Ubuntu 23.04 and later, Fedora, Alpine and \
     Arch all call the package passt; or make the Space with --network none";

/// Finds passt: [`PASST_VARIABLE`] if set, else `passt` in `PATH`.
pub fn find() -> Result<PathBuf, PasstError> {
    process::find("passt", PASST_VARIABLE).map_err(PasstError::Find)
}

/// What passt is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasstConfig {
    /// Whether the guest gets IPv4.
    pub v4: bool,
    /// Whether the guest gets IPv6.
    pub v6: bool,
    /// passt's end of the connected stream socket.
    pub fd: RawFd,
    /// The user that passt becomes; only root can ask for that.
    pub run_as: Option<RunAs>,
}

/// passt's complete command line after its name.
pub fn build(config: &PasstConfig) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut say = |parts: &[&str]| words.extend(parts.iter().map(Into::into));
    // With a socket handed over it serves one guest and ends when the socket closes.
    say(&[
        "--foreground",
        "--quiet",
        "--stderr",
        "--fd",
        &config.fd.to_string(),
    ]);
    // Nothing of the host by the gateway's address, nothing of the guest on the host.
    say(&["--no-map-gw", "--tcp-ports", "none", "--udp-ports", "none"]);
    // guestd sets the addresses, so passt announces none. Neighbour discovery stays: it tells
    // the guest the gateway's hardware address.
    say(&[
        "--no-dhcp",
        "--no-dhcpv6",
        "--no-ra",
        "--mtu",
        &MTU.to_string(),
    ]);
    if config.v4 {
        say(&["--address", GUEST_V4, "--netmask", &PREFIX_V4.to_string()]);
        say(&["--gateway", GATEWAY_V4]);
    } else {
        say(&["--ipv6-only"]);
    }
    if config.v6 {
        say(&["--address", GUEST_V6, "--gateway", GATEWAY_V6]);
    } else {
        say(&["--ipv4-only"]);
    }
    if let Some(RunAs { uid, gid }) = config.run_as {
        say(&["--runas", &format!("{uid}:{gid}")]);
    }
    words
}

/// The guest's side of the same settings.
pub fn guest_config(host: &HostNetwork, mac: &str) -> NetConfig {
    let mut config = NetConfig {
        mac: mac.to_owned(),
        addresses: Vec::new(),
        gateways: Vec::new(),
        dns: Vec::new(),
        mtu: MTU,
    };
    if host.v4 {
        config.addresses.push(format!("{GUEST_V4}/{PREFIX_V4}"));
        config.gateways.push(GATEWAY_V4.to_owned());
    }
    if host.v6 {
        config.addresses.push(format!("{GUEST_V6}/{PREFIX_V6}"));
        config.gateways.push(GATEWAY_V6.to_owned());
    }
    let reachable = |server: &&IpAddr| match server {
        IpAddr::V4(_) => host.v4,
        IpAddr::V6(_) => host.v6,
    };
    config.dns = host
        .dns
        .iter()
        .filter(reachable)
        .map(ToString::to_string)
        .collect();
    config
}

/// Why there is no data network.
#[derive(Debug, thiserror::Error)]
pub enum PasstError {
    /// passt is not there.
    #[error(transparent)]
    Find(FindError),
    /// The host has no default route, so there is no network to give.
    #[error("the host has no default route")]
    NoRoute,
    /// No sockets.
    #[error("cannot make a socket pair")]
    Socket(#[source] io::Error),
    /// The interface cannot be used.
    #[error("cannot use the network interface")]
    Tap(#[source] io::Error),
    /// passt did not start.
    #[error("cannot start passt")]
    Start(#[source] SpawnError),
}

impl PasstError {
    /// What a person can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Find(FindError::NotInPath { .. }) => PACKAGES,
            Self::Find(FindError::OverrideMissing { .. }) => "unset or mend AIRLOCK_PASST",
            Self::NoRoute => "connect the host to a network, or use --network none",
            Self::Socket(_) | Self::Tap(_) | Self::Start(_) => {
                "see the Space's log, or use --network none"
            }
        }
    }
}

/// A running data network. Dropping it ends it.
#[derive(Debug)]
pub struct DataLink {
    /// passt. When it ends, the guest's network is gone until the next start.
    pub process: VmProcess,
    /// What guestd sets.
    pub guest: NetConfig,
    wall: JoinHandle<Result<(), WallError>>,
}

impl Drop for DataLink {
    fn drop(&mut self) {
        self.wall.abort();
    }
}

impl DataLink {
    const fn new(
        process: VmProcess,
        guest: NetConfig,
        wall: JoinHandle<Result<(), WallError>>,
    ) -> Self {
        Self {
            process,
            guest,
            wall,
        }
    }

    /// Waits until the network is gone: passt ended, the Space ended, or the wall found a lie.
    pub async fn ended(&mut self) -> Result<(), WallError> {
        match (&mut self.wall).await {
            Ok(result) => result,
            // Only a panic or our own drop ends the task without a result.
            Err(gone) => Err(WallError::Io(io::Error::other(gone))),
        }
    }
}

/// A passt that no Space is joined to yet.
#[derive(Debug)]
pub struct Passt {
    process: VmProcess,
    ours: UnixStream,
    /// What is to be set inside.
    pub guest: NetConfig,
}

/// Starts passt. Call it on a thread that lives as long as the network must (see
/// [`airlock_process`]).
pub fn start(
    passt: &Path,
    host: &HostNetwork,
    mac: &str,
    log: Option<File>,
) -> Result<Passt, PasstError> {
    if !host.v4 && !host.v6 {
        return Err(PasstError::NoRoute);
    }
    let (ours, theirs) = pair()?;
    let mut inherited = InheritedFds::new();
    let fd = inherited.add(theirs);
    // passt started by root changes its user itself: it enters namespaces of its own first.
    let run_as = RunAs::for_passt();
    let process = process::spawn(SpawnRequest {
        binary: passt.to_owned(),
        argv: build(&PasstConfig {
            v4: host.v4,
            v6: host.v6,
            fd,
            run_as,
        }),
        inherited,
        run_as: None,
        log,
    })
    .map_err(PasstError::Start)?;
    Ok(Passt {
        process,
        ours,
        guest: guest_config(host, mac),
    })
}

impl Passt {
    /// Joins a machine that sends its frames through a stream socket, as QEMU's `-netdev stream`
    /// does. Returns the socket that it inherits. Call it inside the runtime.
    pub fn join_socket(self) -> Result<(DataLink, OwnedFd), PasstError> {
        let (ours, theirs) = pair()?;
        let wall = tokio::spawn(wall::guard(ours, self.ours));
        Ok((DataLink::new(self.process, self.guest, wall), theirs))
    }

    /// Joins a network namespace through `tap`, the descriptor of a TAP interface without packet
    /// information. Call it inside the runtime.
    pub fn join_tap(self, tap: OwnedFd) -> Result<DataLink, PasstError> {
        rustix::io::ioctl_fionbio(&tap, true).map_err(|error| PasstError::Tap(error.into()))?;
        let tap = tap::watch(tap).map_err(PasstError::Tap)?;
        let wall = tokio::spawn(tap::guard(tap, self.ours));
        Ok(DataLink::new(self.process, self.guest, wall))
    }
}

/// One end for us, one to be inherited. The inherited end may block: its owner decides.
fn pair() -> Result<(UnixStream, OwnedFd), PasstError> {
    process::socket_pair().map_err(PasstError::Socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(config: &PasstConfig) -> String {
        let words = build(config);
        words
            .iter()
            .map(|word| word.to_str().unwrap())
            .collect::<Vec<_>>()
            .join(" ")
    }

    const FIXED: &str = "--foreground --quiet --stderr --fd 9 --no-map-gw --tcp-ports none \
         --udp-ports none --no-dhcp --no-dhcpv6 --no-ra --mtu 65520";

    #[test]
    fn both_families_with_another_user() {
        let run_as = Some(RunAs { uid: 1, gid: 2 });
        assert_eq!(
            words(&PasstConfig {
                v4: true,
                v6: true,
                fd: 9,
                run_as
            }),
            format!(
                "{FIXED} --address 10.193.194.2 --netmask 30 --gateway 10.193.194.1 \
                 --address fd41:6972:6c6f:636b::2 --gateway fd41:6972:6c6f:636b::1 --runas 1:2"
            )
        );
    }

    #[test]
    fn one_family_alone() {
        assert_eq!(
            words(&PasstConfig {
                v4: true,
                v6: false,
                fd: 9,
                run_as: None
            }),
            format!(
                "{FIXED} --address 10.193.194.2 --netmask 30 --gateway 10.193.194.1 --ipv4-only"
            )
        );
        assert_eq!(
            words(&PasstConfig {
                v4: false,
                v6: true,
                fd: 9,
                run_as: None
            }),
            format!(
                "{FIXED} --ipv6-only --address fd41:6972:6c6f:636b::2 \
                 --gateway fd41:6972:6c6f:636b::1"
            )
        );
    }

    #[test]
    fn the_guest_gets_only_servers_that_it_can_reach() {
        let dns = vec![
            "1.1.1.1".parse().unwrap(),
            "2606:4700::1111".parse().unwrap(),
        ];
        let host = HostNetwork {
            v4: true,
            v6: false,
            dns,
        };
        let config = guest_config(&host, "52:54:00:00:00:02");
        assert_eq!(config.addresses, ["10.193.194.2/30"]);
        assert_eq!(config.gateways, ["10.193.194.1"]);
        assert_eq!(config.dns, ["1.1.1.1"]);
    }

    #[test]
    fn no_route_is_an_error_before_anything_starts() {
        let host = HostNetwork {
            v4: false,
            v6: false,
            dns: vec![],
        };
        let result = start(Path::new("/nonexistent"), &host, "m", None);
        assert!(matches!(result, Err(PasstError::NoRoute)));
    }
}
