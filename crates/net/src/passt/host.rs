//! What the host's network offers a guest.

use std::net::IpAddr;

/// The host's way out, as far as a guest needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostNetwork {
    /// There is an IPv4 default route.
    pub v4: bool,
    /// There is an IPv6 default route.
    pub v6: bool,
    /// Name servers that a guest may ask: never one on the host's loopback.
    pub dns: Vec<IpAddr>,
}

/// Where name servers are listed. The first is often a stub on the loopback, which a guest must
/// not reach; the others then name the servers behind it.
const RESOLVER_FILES: [&str; 3] = [
    "/etc/resolv.conf",
    "/run/systemd/resolve/resolv.conf",
    "/run/NetworkManager/no-stub-resolv.conf",
];

impl HostNetwork {
    /// Reads the host's routes and name servers.
    ///
    /// A file that cannot be read counts as empty: the host may lack a whole family.
    pub fn read() -> Self {
        let text = |path| fs_err::read_to_string(path).unwrap_or_default();
        Self {
            v4: has_default_v4(&text("/proc/net/route")),
            v6: has_default_v6(&text("/proc/net/ipv6_route")),
            dns: RESOLVER_FILES
                .iter()
                .map(|path| name_servers(&text(path)))
                .find(|servers| !servers.is_empty())
                .unwrap_or_default(),
        }
    }
}

/// Fields: interface, destination, gateway, flags, …, mask (index 7), all hexadecimal.
fn has_default_v4(table: &str) -> bool {
    table.lines().skip(1).any(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let zero = |index: usize| fields.get(index) == Some(&"00000000");
        zero(1) && zero(7) && fields.get(3).is_some_and(|flags| is_up_and_allowed(flags))
    })
}

/// Fields: destination, its prefix length, …, flags (index 8), interface (index 9).
fn has_default_v6(table: &str) -> bool {
    table.lines().any(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let [destination, "00", _, _, _, _, _, _, flags, interface] = fields[..] else {
            return false;
        };
        destination.bytes().all(|digit| digit == b'0')
            && interface != "lo"
            && is_up_and_allowed(flags)
    })
}

/// `RTF_UP` (1) without `RTF_REJECT` (0x200); see route(8).
fn is_up_and_allowed(flags: &str) -> bool {
    u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & 0x201 == 1)
}

fn name_servers(text: &str) -> Vec<IpAddr> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let server = fields
                .next()
                .filter(|word| *word == "nameserver")
                .and(fields.next())?;
            // A link-local server carries a zone that means nothing inside the guest.
            server.parse().ok()
        })
        .filter(|server| match server {
            IpAddr::V4(server) => !server.is_loopback() && !server.is_unspecified(),
            IpAddr::V6(server) => server.segments()[0] != 0 && !server.is_unicast_link_local(),
        })
        .take(3)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
";
    const V6: &str = "\
fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000003 00000000 00000003     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
";

    #[test]
    fn finds_default_routes() {
        assert!(has_default_v4(V4));
        assert!(!has_default_v4(
            &V4.replace("00000000\t010200C0", "00000001\t010200C0")
        ));
        assert!(has_default_v6(V6));
        let unreachable: Vec<_> = V6
            .lines()
            .filter(|line| !line.contains("00000003"))
            .collect();
        assert!(!has_default_v6(&unreachable.join("\n")));
        for junk in ["", "x", "a b c\nd e f", "\n\n"] {
            assert!(!has_default_v4(junk) && !has_default_v6(junk));
        }
    }

    #[test]
    fn loopback_and_zoned_servers_are_left_out() {
        let text = "# c\nnameserver 127.0.0.53\nnameserver ::1\nnameserver fe80::1%eth0\n\
                    search x\nnameserver\nnameserver 10.0.0.53 extra\n nameserver fd00::53\n";
        let expected: Vec<IpAddr> = vec!["10.0.0.53".parse().unwrap(), "fd00::53".parse().unwrap()];
        assert_eq!(name_servers(text), expected);
    }
}
