//! The few rtnetlink requests that fixed settings need, by rtnetlink(7) and
//! `linux/rtnetlink.h`.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

const HEADER_BYTES: usize = 16;
/// The kernel's answer to one request, with room for the request it repeats.
const ANSWER_BYTES: usize = 4096;

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const NLMSG_ERROR: u16 = 2;

const NLM_F_REQUEST: u16 = 0x001;
const NLM_F_ACK: u16 = 0x004;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;

const IFF_UP: u32 = 1;
const IFLA_MTU: u16 = 4;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// The address may be used at once.
const IFA_F_NODAD: u8 = 0x02;

const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_BOOT: u8 = 3;
const RTN_UNICAST: u8 = 1;
/// The gateway need not be in the address's own network.
const RTNH_F_ONLINK: u32 = 4;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// A connection to the kernel's network settings.
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        // Protocol 0 is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Brings an interface up, with packets of at most `mtu` bytes.
    pub(crate) fn set_up(&mut self, index: u32, mtu: Option<u32>) -> io::Result<()> {
        let mut request = Request::new(RTM_NEWLINK, 0);
        request.bytes(&[0; 4]).word(index).word(IFF_UP).word(IFF_UP);
        if let Some(mtu) = mtu {
            request.attribute(IFLA_MTU, &mtu.to_ne_bytes());
        }
        self.ask(request)
    }

    pub(crate) fn add_address(&mut self, index: u32, ip: IpAddr, bits: u8) -> io::Result<()> {
        let (family, octets) = family_and_octets(ip);
        let mut request = Request::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE);
        request.bytes(&[family, bits, IFA_F_NODAD, 0]).word(index);
        request.attribute(IFA_LOCAL, &octets);
        request.attribute(IFA_ADDRESS, &octets);
        self.ask(request)
    }

    pub(crate) fn add_default_route(&mut self, index: u32, gateway: IpAddr) -> io::Result<()> {
        let (family, octets) = family_and_octets(gateway);
        let mut request = Request::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE);
        request.bytes(&[family, 0, 0, 0, RT_TABLE_MAIN, RTPROT_BOOT, 0, RTN_UNICAST]);
        request.word(if gateway.is_ipv4() { RTNH_F_ONLINK } else { 0 });
        request.attribute(RTA_GATEWAY, &octets);
        request.attribute(RTA_OIF, &index.to_ne_bytes());
        self.ask(request)
    }

    fn ask(&mut self, request: Request) -> io::Result<()> {
        self.sequence += 1;
        let message = request.finish(self.sequence);
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &message, SendFlags::empty(), &kernel)?;
        let mut answer = [0; ANSWER_BYTES];
        let (received, _) = recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
        verdict(&answer[..received])
    }
}

/// What the kernel decided: an acknowledgement is an error number of zero.
fn verdict(answer: &[u8]) -> io::Result<()> {
    let word = |at: usize| {
        let word = answer.get(at..at + 4)?;
        Some(i32::from_ne_bytes(word.try_into().ok()?))
    };
    let kind = answer
        .get(4..6)
        .map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
    match (kind, word(HEADER_BYTES)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(error)) => {
            Err(Errno::from_raw_os_error(error.saturating_neg()).into())
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn family_and_octets(ip: IpAddr) -> (u8, Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => (AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (AF_INET6, ip.octets().to_vec()),
    }
}

/// A message under construction.
struct Request(Vec<u8>);

impl Request {
    fn new(kind: u16, flags: u16) -> Self {
        let flags = flags | NLM_F_REQUEST | NLM_F_ACK;
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        Self(bytes)
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn word(&mut self, word: u32) -> &mut Self {
        self.bytes(&word.to_ne_bytes())
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        const ATTRIBUTE_HEADER_BYTES: usize = 4;
        const ALIGN: usize = 4;
        let bytes = (ATTRIBUTE_HEADER_BYTES + value.len()) as u16;
        self.bytes(&bytes.to_ne_bytes())
            .bytes(&kind.to_ne_bytes())
            .bytes(value);
        self.0.resize(self.0.len().next_multiple_of(ALIGN), 0);
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let bytes = self.0.len() as u32;
        self.0[0..4].copy_from_slice(&bytes.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_counted() {
        let mut request = Request::new(RTM_NEWLINK, 0);
        request.attribute(1, &[7]);
        let message = request.finish(9);
        assert_eq!(message.len(), HEADER_BYTES + 8);
        assert_eq!(message[..4], 24_u32.to_ne_bytes());
        assert_eq!(message[8..12], 9_u32.to_ne_bytes());
        assert_eq!(message[16..], [5, 0, 1, 0, 7, 0, 0, 0]);
    }

    #[test]
    fn the_kernels_verdict_is_an_error_number() {
        let answer = |kind: u16, error: i32| {
            let mut answer = vec![0; HEADER_BYTES];
            answer[4..6].copy_from_slice(&kind.to_ne_bytes());
            answer.extend(error.to_ne_bytes());
            answer
        };
        assert!(verdict(&answer(NLMSG_ERROR, 0)).is_ok());
        let refused = verdict(&answer(NLMSG_ERROR, -1)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(verdict(&answer(3, 0)).is_err());
        assert!(verdict(&[]).is_err());
    }

    #[test]
    fn the_kernel_understands_and_refuses_a_missing_interface() {
        let mut netlink = Netlink::open().unwrap();
        for _ in 0..2 {
            assert!(netlink.set_up(u32::MAX >> 1, None).is_err());
        }
    }
}
