//! Connections that wait to be accepted by QEMU's forwarded port.
//!
//! QEMU listens there with room for a single one. A burst of connections overflows it, and those
//! that the kernel drops then look connected to their client and break at the first byte. So the
//! keeper, through which every connection goes, makes the next one when the last was accepted.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Pause between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// How long one connection may hold up the next: a stopped machine accepts nothing at all.
const PATIENCE: Duration = Duration::from_secs(2);

/// Completes when the listener at `address` on this host has accepted every connection.
pub(super) async fn accepted(address: SocketAddr) {
    let all = async {
        while fs_err::read_to_string("/proc/self/net/tcp")
            .ok()
            .and_then(|table| waiting(&table, address))
            .is_some_and(|count| count > 0)
        {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    // The kernel copes somehow with what comes after that.
    let _ = tokio::time::timeout(PATIENCE, all).await;
}

/// How many connections wait at the listener, by `/proc/net/tcp`; nothing when it is not there.
fn waiting(table: &str, listener: SocketAddr) -> Option<u32> {
    /// `TCP_LISTEN`, as the table has it.
    const LISTENS: &str = "0A";
    let IpAddr::V4(ip) = listener.ip() else {
        return None;
    };
    let local = format!(
        "{:08X}:{:04X}",
        u32::from_ne_bytes(ip.octets()),
        listener.port()
    );
    table.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (own, _remote) = (fields.next()?, fields.next()?);
        if own != local || fields.next()? != LISTENS {
            return None;
        }
        // For a listener the receive queue counts connections.
        let (_sent, received) = fields.next()?.split_once(':')?;
        u32::from_str_radix(received, 16).ok()
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;
    use crate::guest::{Door, Guest};

    /// A listener with as little room as QEMU's.
    fn cramped() -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        listener
    }

    #[test]
    fn a_connection_counts_until_it_is_accepted() {
        let listener = cramped();
        let address = listener.local_addr().unwrap();
        let count = || {
            let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
            waiting(&table, address)
        };
        assert_eq!(count(), Some(0));
        let _client = std::net::TcpStream::connect(address).unwrap();
        assert_eq!(count(), Some(1));
        let _server = listener.accept().unwrap();
        assert_eq!(count(), Some(0));
        drop(listener);
        assert_eq!(count(), None);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_burst_of_connections_all_arrive() {
        const BURST: usize = 40;
        let listener = cramped();
        let guest = Guest::new(
            Door::Port(listener.local_addr().unwrap()),
            "token".to_owned(),
        )
        .unwrap();
        let server = std::thread::spawn(move || {
            for _ in 0..BURST {
                // A machine that emulates a busy guest looks at its network now and then.
                std::thread::sleep(Duration::from_millis(3));
                let (mut stream, _) = listener.accept().unwrap();
                std::thread::spawn(move || {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    stream.write_all(&byte).unwrap();
                });
            }
        });
        let clients: Vec<_> = (0..BURST as u8)
            .map(|number| {
                let guest = guest.clone();
                tokio::spawn(async move {
                    let mut stream = std::net::TcpStream::from(guest.connect().await.unwrap());
                    stream.set_nonblocking(false).unwrap();
                    tokio::task::spawn_blocking(move || {
                        stream.write_all(&[number]).unwrap();
                        let mut answer = [0];
                        stream.read_exact(&mut answer).unwrap();
                        assert_eq!(answer, [number]);
                    })
                    .await
                    .unwrap();
                })
            })
            .collect();
        let all = async {
            for client in clients {
                client.await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(30), all)
            .await
            .expect("a connection was lost");
        server.join().unwrap();
    }
}
