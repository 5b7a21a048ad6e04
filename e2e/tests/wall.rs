//! What a Space must not reach.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on shall end, and say why"
)]

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use airlock_e2e::processes::{children, kill9};
use airlock_e2e::{Kind, TestSpace, on_both_kinds, wait_until};

on_both_kinds! {
    every_day: the_default_network_does_not_lead_to_the_hosts_loopback, no_network_is_no_network;
    slow_on_vm: a_lost_network_is_told;
}

/// A listener that counts who gets through, on every address of the host's loopback.
fn count_visitors(address: &str) -> Option<(u16, Arc<AtomicU32>)> {
    let listener = TcpListener::bind((address, 0)).ok()?;
    let port = listener.local_addr().ok()?.port();
    let visitors = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&visitors);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::Relaxed);
            if let Ok(mut stream) = stream {
                // The visitor may be gone already; it was counted.
                let _ = stream.write_all(b"host\n");
            }
        }
    });
    Some((port, visitors))
}

fn reaches_nothing_of_the_host(kind: Kind, network: &str) {
    let space = TestSpace::with(kind, "wall", "tiny", &["--network", network]);
    let (port, visitors) = count_visitors("127.0.0.1").unwrap();
    let v6 = count_visitors("::1");
    // The listener works: this process reaches it.
    std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    while visitors.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    let gateways = space.sh("ip route | sed -n 's/.*via \\([0-9.]*\\).*/\\1/p'");
    let mut addresses: Vec<String> = ["127.0.0.1", "0.0.0.0", "10.0.2.2", "169.254.193.2"]
        .iter()
        .map(|address| (*address).to_owned())
        .collect();
    addresses.extend(gateways.lines().map(str::to_owned));
    for address in &addresses {
        let line = format!("echo x | nc -w 2 {address} {port} | head -c 5; true");
        assert_eq!(
            space.sh(&line),
            "",
            "something answered at {address} ({network})"
        );
    }
    assert_eq!(
        visitors.load(Ordering::Relaxed),
        1,
        "the Space reached the host's loopback"
    );
    if let Some((port, visitors)) = v6 {
        let line = format!("echo x | nc -w 2 ::1 {port} | head -c 5; true");
        assert_eq!(space.sh(&line), "");
        assert_eq!(visitors.load(Ordering::Relaxed), 0);
    }
}

fn the_default_network_does_not_lead_to_the_hosts_loopback(kind: Kind) {
    reaches_nothing_of_the_host(kind, "default");
}

fn no_network_is_no_network(kind: Kind) {
    reaches_nothing_of_the_host(kind, "none");
    let space = TestSpace::with(kind, "none", "tiny", &["--network", "none"]);
    assert_eq!(space.sh("ip route | grep -c default; true"), "0");
}

/// A Space whose network dies says so, and lives on.
fn a_lost_network_is_told(kind: Kind) {
    let space = TestSpace::tiny(kind, "netless");
    let keeper = space.keeper_state()["keeper"]["pid"].as_u64().unwrap();
    let is_passt = |pid: &u64| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.starts_with("passt")
    };
    kill9(children(keeper).into_iter().find(is_passt).unwrap());
    wait_until("it is told", || {
        space.info()["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("network"))
    });
    assert_eq!(space.state(), "running");
    assert_eq!(space.sh("echo alive"), "alive");
}
