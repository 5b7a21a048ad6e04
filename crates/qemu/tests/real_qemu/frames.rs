//! A hostile guest's packets against the real passt behind the wall, frame by frame.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use airlock_net::passt::{self, GUEST_V4, GUEST_V6, HostNetwork};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket, UnixStream};

const GUEST_MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 2];
const UDP: u8 = 17;
const TCP: u8 = 6;

/// The address that this host shows to others, without sending anything.
pub(crate) fn outside_address(host: &HostNetwork) -> Option<IpAddr> {
    let (own, far) = if host.v4 {
        ("0.0.0.0:0", "203.0.113.1:9")
    } else {
        ("[::]:0", "[2001:db8::1]:9")
    };
    let socket = std::net::UdpSocket::bind(own).ok()?;
    socket.connect(far).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

struct Listener {
    name: &'static str,
    tcp: TcpListener,
    udp: UdpSocket,
}

impl Listener {
    async fn at(name: &'static str, address: IpAddr) -> Self {
        let tcp = TcpListener::bind((address, 0)).await.unwrap();
        let udp = UdpSocket::bind((address, tcp.local_addr().unwrap().port()))
            .await
            .unwrap();
        Self { name, tcp, udp }
    }

    fn port(&self) -> u16 {
        self.tcp.local_addr().unwrap().port()
    }
}

#[tokio::test]
async fn no_packet_reaches_the_hosts_loopback() {
    let host = HostNetwork::read();
    let Ok(program) = passt::find() else {
        eprintln!("skipped: passt is not installed");
        return;
    };
    let Some(outside) = outside_address(&host) else {
        eprintln!("skipped: the host has no network");
        return;
    };
    let (_link, qemu_end) = passt::start(&program, &host, "52:54:00:00:00:02", None)
        .and_then(passt::Passt::join_socket)
        .unwrap();
    let mut guest = RawGuest::new(qemu_end);

    let open = Listener::at("outside", outside).await;
    let any = Listener::at("wildcard", Ipv4Addr::UNSPECIFIED.into()).await;
    let loopback = Listener::at("127.0.0.1", Ipv4Addr::LOCALHOST.into()).await;
    let loopback6 = Listener::at("::1", Ipv6Addr::LOCALHOST.into()).await;

    let mut tries: Vec<(&str, &Listener)> = vec![(passt::GATEWAY_V4, &loopback)];
    for address in [
        "127.0.0.1",
        "0.0.0.0",
        "::ffff:127.0.0.1",
        "::ffff:0.0.0.0",
        "::127.0.0.1",
    ] {
        tries.push((address, &loopback));
    }
    for address in [
        "127.0.0.53",
        "127.255.255.255",
        "255.255.255.255",
        "224.0.0.1",
    ] {
        tries.push((address, &any));
    }
    for address in ["::1", "::", passt::GATEWAY_V6, "ff02::1", "ff01::1"] {
        tries.push((address, &loopback6));
    }
    for (address, listener) in &tries {
        guest.knock(address.parse().unwrap(), listener.port()).await;
    }
    // The control comes last on the same stream, so what came before has been judged by then.
    guest.knock(outside, open.port()).await;
    let patience = Duration::from_secs(10);
    tokio::time::timeout(patience, open.tcp.accept())
        .await
        .expect("TCP outside")
        .unwrap();
    let mut buffer = [0; 8];
    tokio::time::timeout(patience, open.udp.recv(&mut buffer))
        .await
        .expect("UDP outside")
        .unwrap();

    for listener in [&any, &loopback, &loopback6] {
        let grace = Duration::from_millis(200);
        let accepted = tokio::time::timeout(grace, listener.tcp.accept()).await;
        assert!(accepted.is_err(), "{}: {accepted:?}", listener.name);
        let received = listener.udp.try_recv_from(&mut buffer);
        assert!(received.is_err(), "{}: {received:?}", listener.name);
    }
}

/// A guest that writes its packets itself.
struct RawGuest {
    stream: UnixStream,
    gateway_mac: [u8; 6],
    next_port: u16,
}

impl RawGuest {
    fn new(qemu_end: OwnedFd) -> Self {
        let stream = std::os::unix::net::UnixStream::from(qemu_end);
        stream.set_nonblocking(true).unwrap();
        let stream = UnixStream::from_std(stream).unwrap();
        // passt takes frames for any hardware address.
        Self {
            stream,
            gateway_mac: [0x02; 6],
            next_port: 40_000,
        }
    }

    /// Sends the first packet of a TCP connection and one UDP datagram.
    async fn knock(&mut self, address: IpAddr, port: u16) {
        let own = self.next_port;
        self.next_port += 1;
        let to = SocketAddr::new(address, port);
        let mut syn = Vec::new();
        syn.extend(own.to_be_bytes());
        syn.extend(port.to_be_bytes());
        syn.extend([0, 0, 1, 0, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
        self.send(to.ip(), TCP, 16, syn).await;
        let mut datagram = Vec::new();
        datagram.extend(own.to_be_bytes());
        datagram.extend(port.to_be_bytes());
        datagram.extend([0, 12, 0, 0]);
        datagram.extend(b"ping");
        self.send(to.ip(), UDP, 6, datagram).await;
        self.discard_answers().await;
    }

    async fn send(&mut self, to: IpAddr, protocol: u8, checksum_at: usize, mut segment: Vec<u8>) {
        let length = u16::try_from(segment.len()).unwrap();
        let (ethertype, header, mut pseudo) = match to {
            IpAddr::V4(to) => {
                let from: Ipv4Addr = GUEST_V4.parse().unwrap();
                let mut header = vec![0x45, 0];
                header.extend((20 + length).to_be_bytes());
                header.extend([0, 1, 0, 0, 64, protocol, 0, 0]);
                header.extend(from.octets());
                header.extend(to.octets());
                let sum = checksum(&header);
                header[10..12].copy_from_slice(&sum);
                let pseudo = [from.octets(), to.octets()].concat();
                ([0x08, 0x00], header, pseudo)
            }
            IpAddr::V6(to) => {
                let from: Ipv6Addr = GUEST_V6.parse().unwrap();
                let mut header = vec![0x60, 0, 0, 0];
                header.extend(length.to_be_bytes());
                header.extend([protocol, 64]);
                header.extend(from.octets());
                header.extend(to.octets());
                ([0x86, 0xdd], header, [from.octets(), to.octets()].concat())
            }
        };
        pseudo.extend([0, protocol]);
        pseudo.extend(length.to_be_bytes());
        pseudo.extend(&segment);
        let sum = checksum(&pseudo);
        segment[checksum_at..checksum_at + 2].copy_from_slice(&sum);
        let mut frame = Vec::new();
        frame.extend(self.gateway_mac);
        frame.extend(GUEST_MAC);
        frame.extend(ethertype);
        frame.extend(header);
        frame.extend(segment);
        let length = u32::try_from(frame.len()).unwrap();
        self.stream.write_all(&length.to_be_bytes()).await.unwrap();
        self.stream.write_all(&frame).await.unwrap();
    }

    /// Keeps passt from waiting for room; what it says does not matter here.
    async fn discard_answers(&mut self) {
        let mut buffer = vec![0; 65536];
        let moment = Duration::from_millis(20);
        while let Ok(read) = tokio::time::timeout(moment, self.stream.read(&mut buffer)).await {
            assert_ne!(read.unwrap(), 0, "passt or the wall ended");
        }
    }
}

/// The Internet checksum, RFC 1071.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)))
        .sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).unwrap()).to_be_bytes()
}
