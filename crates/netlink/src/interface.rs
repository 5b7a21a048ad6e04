//! One interface: found by its hardware address, then set as a [`NetConfig`] says.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use airlock_model::NetConfig;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};

use crate::socket::Netlink;

/// How long an interface may take to appear after its driver was loaded.
const APPEAR_TIMEOUT: Duration = Duration::from_secs(5);
/// How often that is looked at.
const APPEAR_POLL: Duration = Duration::from_millis(2);
/// The loopback interface is always the first.
const LOOPBACK_INDEX: u32 = 1;

/// Why an interface could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A text that is no address with prefix length.
    #[error("{0:?} is no address")]
    BadAddress(String),
    /// No interface has the hardware address.
    #[error("there is no interface {mac}")]
    NoInterface {
        /// The hardware address.
        mac: String,
    },
    /// The kernel refused a setting.
    #[error("cannot {step} of {interface}")]
    Refused {
        /// What was tried.
        step: &'static str,
        /// The interface.
        interface: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// An address with its prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// How many of its first bits name the network.
    pub prefix_bits: u8,
}

/// Reads `10.0.2.15/24` or `fd00::2/64`.
pub fn parse_address(text: &str) -> Result<Address, NetworkError> {
    let bad = || NetworkError::BadAddress(text.to_owned());
    let (ip, bits) = text.split_once('/').ok_or_else(bad)?;
    let ip = parse_ip(ip)?;
    let prefix_bits = bits.parse().map_err(|_| bad())?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    if prefix_bits > most {
        return Err(bad());
    }
    Ok(Address { ip, prefix_bits })
}

fn parse_ip(text: &str) -> Result<IpAddr, NetworkError> {
    text.parse()
        .map_err(|_| NetworkError::BadAddress(text.to_owned()))
}

/// Brings the loopback up.
pub fn set_up_loopback() -> Result<(), NetworkError> {
    let refused = |source| NetworkError::Refused {
        step: "set the state",
        interface: "the loopback".to_owned(),
        source,
    };
    let mut netlink = Netlink::open().map_err(refused)?;
    netlink.set_up(LOOPBACK_INDEX, None).map_err(refused)
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    name: String,
    index: u32,
}

impl Interface {
    /// The interface called `name`.
    pub fn named(name: &str) -> Result<Self, NetworkError> {
        let lookup = || {
            let any = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
            rustix::net::netdevice::name_to_index(any, name)
        };
        let index = lookup().map_err(|errno: Errno| NetworkError::Refused {
            step: "find the index",
            interface: name.to_owned(),
            source: errno.into(),
        })?;
        Ok(Self {
            name: name.to_owned(),
            index,
        })
    }

    /// The interface with hardware address `mac`; waits for it to appear.
    pub fn with_mac(mac: &str) -> Result<Self, NetworkError> {
        let deadline = Instant::now() + APPEAR_TIMEOUT;
        loop {
            if let Some(interface) = Self::find(mac) {
                return Ok(interface);
            }
            if Instant::now() > deadline {
                return Err(NetworkError::NoInterface {
                    mac: mac.to_owned(),
                });
            }
            std::thread::sleep(APPEAR_POLL);
        }
    }

    fn find(mac: &str) -> Option<Self> {
        for entry in fs::read_dir("/sys/class/net").ok()?.flatten() {
            let fact = |name| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
            if fact("address").trim().eq_ignore_ascii_case(mac) {
                return Some(Self {
                    name: entry.file_name().to_string_lossy().into_owned(),
                    index: fact("ifindex").trim().parse().ok()?,
                });
            }
        }
        None
    }

    /// Brings it up with the addresses and gateways of `net`.
    pub fn set(&self, net: &NetConfig) -> Result<(), NetworkError> {
        self.quieten_ipv6();
        let refused = |step, source| NetworkError::Refused {
            step,
            interface: self.name.clone(),
            source,
        };
        let mut netlink =
            Netlink::open().map_err(|source| refused("use the kernel's settings", source))?;
        netlink
            .set_up(self.index, Some(net.mtu))
            .map_err(|source| refused("set the state", source))?;
        for text in &net.addresses {
            let address = parse_address(text)?;
            netlink
                .add_address(self.index, address.ip, address.prefix_bits)
                .map_err(|source| refused("set the address", source))?;
        }
        for text in &net.gateways {
            netlink
                .add_default_route(self.index, parse_ip(text)?)
                .map_err(|source| refused("set the gateway", source))?;
        }
        Ok(())
    }

    /// Addresses are fixed: no router may add others, and none has to be probed first.
    fn quieten_ipv6(&self) {
        let conf = Path::new("/proc/sys/net/ipv6/conf").join(&self.name);
        for knob in ["accept_ra", "accept_dad"] {
            // Without IPv6 there is nothing to quieten.
            let _ = fs::write(conf.join(knob), "0");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_found_by_name() {
        assert_eq!(Interface::named("lo").unwrap().index, LOOPBACK_INDEX);
        let missing = Interface::named("none0").unwrap_err();
        assert_eq!(missing.to_string(), "cannot find the index of none0");
    }

    #[test]
    fn addresses_have_a_prefix() {
        let address = parse_address("10.0.2.15/24").unwrap();
        assert_eq!(
            (address.ip.to_string().as_str(), address.prefix_bits),
            ("10.0.2.15", 24)
        );
        assert_eq!(parse_address("fd00::2/64").unwrap().prefix_bits, 64);
        for bad in [
            "10.0.2.15",
            "10.0.2.15/33",
            "x/24",
            "fd00::2/129",
            "1.2.3.4/",
            "",
        ] {
            assert!(parse_address(bad).is_err(), "{bad}");
        }
    }
}
