//! What the keeper hands to guestd at boot, through the lane's first MiB.
//!
//! The lane carries it because it is private memory of the keeper: nothing of it shows in a
//! command line, an environment or a file. guestd wipes it after reading.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::SpaceName;

/// The boot configuration of one Space.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootConfig {
    /// The Space's host name.
    pub hostname: SpaceName,
    /// Bearer token that every call needs.
    pub token: String,
    /// 32 hexadecimal digits, made once per Space: `/etc/machine-id`.
    pub machine_id: String,
    /// Nanoseconds since the Unix epoch on the host, to set the clock.
    pub now_unix_ns: u64,
    /// Seed for the Space's random number generator, 64 hexadecimal digits, new at every boot.
    pub entropy: String,
    /// Build of the host program; guestd reports it next to its own.
    pub host_build: String,
    /// The interface that carries the control connection, where that needs one.
    pub control: Option<NetConfig>,
    /// The interface that reaches the world, if the Space may.
    pub network: Option<NetConfig>,
}

impl fmt::Debug for BootConfig {
    /// Leaves out the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BootConfig")
            .field("hostname", &self.hostname)
            .field("machine_id", &self.machine_id)
            .field("host_build", &self.host_build)
            .field("control", &self.control)
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}

/// Fixed settings of one network interface; no DHCP runs in a Space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetConfig {
    /// Hardware address by which the interface is found, `52:54:00:…`.
    pub mac: String,
    /// Addresses with prefix length, `10.0.2.15/24` or `fd00::2/64`.
    pub addresses: Vec<String>,
    /// Default gateways (at most one per family). Empty: no default route.
    pub gateways: Vec<String>,
    /// Name servers for `/etc/resolv.conf`.
    pub dns: Vec<String>,
    /// Largest packet in bytes.
    pub mtu: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_the_secrets() {
        let config = BootConfig {
            hostname: SpaceName::new("a").unwrap(),
            token: "tok-secret".into(),
            machine_id: "0".repeat(32),
            now_unix_ns: 1,
            entropy: "ent-secret".into(),
            host_build: "b".into(),
            control: Some(NetConfig {
                mac: "52:54:00:00:00:01".into(),
                addresses: vec![],
                gateways: vec![],
                dns: vec![],
                mtu: 1500,
            }),
            network: None,
        };
        assert!(!format!("{config:?}").contains("secret"));
    }
}
