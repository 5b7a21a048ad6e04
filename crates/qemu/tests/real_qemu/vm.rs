//! One machine with everything attached.

use std::fs::File;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use airlock_net::passt::{self, DataLink, HostNetwork};
use airlock_process::{self as process, SpawnRequest};
use airlock_process::{InheritedFds, RunAs, VmProcess};
use airlock_qemu::accel::Backend;
use airlock_qemu::argv::{
    self, ControlNet, DataNet, Lane, RootDisk, Source, VmConfig, fast_cmdline,
};
use airlock_qemu::{Qmp, overlay};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use tokio::net::TcpListener;

use crate::frames::outside_address;
use crate::guest::Guest;
use crate::{initramfs, qemu};

const MIB: u64 = 1024 * 1024;
const DATA_MAC: &str = "52:54:00:00:00:02";

struct Vm {
    process: VmProcess,
    qmp: Qmp,
    guest: Guest,
    lane: File,
    link: Option<DataLink>,
    folder: tempfile::TempDir,
}

fn sealed_memory(bytes: u64) -> File {
    let memory = memfd_create("lane", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&memory, bytes).unwrap();
    fcntl_add_seals(
        &memory,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    )
    .unwrap();
    File::from(memory)
}

async fn boot(network: bool) -> Option<Vm> {
    let (qemu, kernel) = (qemu().await?, initramfs::kernel()?);
    let folder = tempfile::tempdir().unwrap();
    let initrd = initramfs::write(&kernel, folder.path());
    // Private like a Space's folder: QEMU's user must not need any path.
    rustix::fs::chmod(folder.path(), rustix::fs::Mode::RWXU).unwrap();

    let lane = sealed_memory(258 * MIB);
    let base_path = folder.path().join("base.raw");
    let base = File::create_new(&base_path).unwrap();
    base.set_len(64 * MIB).unwrap();
    base.write_all_at(b"from the base image", 0).unwrap();
    let overlay_path = folder.path().join("overlay.qcow2");
    overlay::create(&qemu, &overlay_path, 1024 * MIB, RunAs::for_vm())
        .await
        .unwrap();

    let open_rw = |path| File::options().read(true).write(true).open(path).unwrap();
    let console_path = folder.path().join("console.log");
    let console = File::options()
        .create(true)
        .append(true)
        .open(&console_path)
        .unwrap();
    let (ours, theirs) = process::socket_pair().unwrap();
    let mut inherited = InheritedFds::new();
    let (mut link, mut data) = (None, None);
    if network {
        let passt = passt::find().ok()?;
        let started = passt::start(&passt, &HostNetwork::read(), DATA_MAC, None)
            .and_then(passt::Passt::join_socket)
            .unwrap();
        let fd = inherited.add(started.1);
        link = Some(started.0);
        data = Some(DataNet {
            mac: DATA_MAC.into(),
            fd,
        });
    }
    let config = VmConfig {
        arch: qemu.arch,
        accel: Backend::Tcg,
        cpus: 2,
        memory_mb: 512,
        kernel: Source::Fd(inherited.add(File::open(&kernel).unwrap())),
        initrd: Source::Fd(inherited.add(File::open(&initrd).unwrap())),
        cmdline: fast_cmdline(qemu.arch),
        lane: Some(Lane {
            fd: inherited.add(lane.try_clone().unwrap()),
        }),
        root: Some(RootDisk {
            base: inherited.add(File::open(&base_path).unwrap()),
            overlay: inherited.add(open_rw(&overlay_path)),
        }),
        control: Some(ControlNet {
            mac: "52:54:00:00:00:01".into(),
        }),
        data,
        qmp: inherited.add(theirs),
        console: inherited.add(console),
        sandbox: true,
    };
    let log = File::create(folder.path().join("qemu.log")).unwrap();
    let started = Instant::now();
    let process = process::spawn(SpawnRequest {
        binary: qemu.path,
        argv: argv::build(&config),
        inherited,
        run_as: RunAs::for_vm(),
        log: Some(log),
    })
    .unwrap();
    let qmp = Qmp::connect(ours).await.unwrap_or_else(|error| {
        let log = fs_err::read_to_string(folder.path().join("qemu.log")).unwrap();
        panic!("{error}: {log}");
    });
    let guest = Guest {
        port: qmp.info_usernet_port().await.unwrap(),
    };
    guest.ready().await;
    let console = fs_err::read_to_string(console_path).unwrap();
    let ready = console
        .lines()
        .find(|line| line.contains(initramfs::READY))
        .unwrap_or_default();
    eprintln!(
        "the guest answered after {:?}; its own clock: {ready}",
        started.elapsed()
    );
    Some(Vm {
        process,
        qmp,
        guest,
        lane,
        link,
        folder,
    })
}

/// Names the guest's disk with `serial` in `$d`.
fn disk(serial: &str) -> String {
    format!("d=/dev/$(grep -lx {serial} /sys/block/vd*/serial | cut -d/ -f4)")
}

#[tokio::test]
async fn disks_lane_port_user_and_shutdown() {
    let Some(mut vm) = boot(false).await else {
        return;
    };
    let guest = &vm.guest;

    // Disks by serial, with the right sizes, and only the root disk discards.
    for (serial, sectors, discards) in [
        (argv::LANE_SERIAL, 258 * MIB / 512, false),
        (argv::ROOT_SERIAL, 1024 * MIB / 512, true),
    ] {
        let block = format!("{}; b=/sys/block/${{d#/dev/}}", disk(serial));
        let seen = guest
            .run(&format!("{block}; cat $b/size $b/queue/discard_max_bytes"))
            .await;
        let mut seen = seen.lines().map(|line| line.parse::<u64>().unwrap());
        assert_eq!(seen.next(), Some(sectors), "{serial}");
        assert_eq!(seen.next().unwrap() > 0, discards, "{serial}");
    }

    // The lane is one memory, both ways.
    let lane = disk(argv::LANE_SERIAL);
    for round in 0..8_u64 {
        let words = format!("host to guest {round}");
        vm.lane.write_all_at(words.as_bytes(), round * MIB).unwrap();
        let read = format!("{lane}; dd if=$d bs=1M skip={round} count=1 iflag=direct 2>/dev/null");
        let seen = guest
            .run(&format!("{read} | head -c {}; echo", words.len()))
            .await;
        assert_eq!(seen, format!("{words}\n"));
        let write = format!("dd of=$d bs=1M seek={round} conv=sync oflag=direct 2>/dev/null");
        guest
            .run(&format!("{lane}; echo guest to host {round} | {write}"))
            .await;
        let mut seen = [0; 15];
        vm.lane.read_exact_at(&mut seen, round * MIB).unwrap();
        assert_eq!(seen, *format!("guest to host {round}").as_bytes());
    }

    // The root disk shows the base below, takes writes above, and shrinks when they are discarded.
    let root = disk(argv::ROOT_SERIAL);
    assert_eq!(
        guest.run(&format!("{root}; head -c 19 $d; echo")).await,
        "from the base image\n"
    );
    let overlay_bytes = || {
        use std::os::unix::fs::MetadataExt;
        fs_err::metadata(vm.folder.path().join("overlay.qcow2"))
            .unwrap()
            .blocks()
            * 512
    };
    guest
        .run(&format!(
            "{root}; dd if=/dev/urandom of=$d bs=1M seek=100 count=32; sync"
        ))
        .await;
    assert!(overlay_bytes() >= 32 * MIB, "{}", overlay_bytes());
    let discard = format!("{root}; blkdiscard -o {} -l {} $d", 100 * MIB, 32 * MIB);
    guest.run(&discard).await;
    assert!(overlay_bytes() < 2 * MIB, "{}", overlay_bytes());
    let base = File::open(vm.folder.path().join("base.raw")).unwrap();
    let mut first = [0; 19];
    base.read_exact_at(&mut first, 0).unwrap();
    assert_eq!(&first, b"from the base image");

    // No way out by the control network.
    let outside = guest
        .run("ip route; nc -w 2 169.254.193.2 22 </dev/null; echo $?")
        .await;
    assert!(
        !outside.contains("default") && outside.ends_with("1\n"),
        "{outside}"
    );

    // The process is locked down.
    let status = fs_err::read_to_string(format!("/proc/{}/status", vm.process.pid())).unwrap();
    let field = |name: &str| {
        let found = status.lines().find(|line| line.starts_with(name)).unwrap();
        found
            .split_whitespace()
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(field("Seccomp:"), ["2"]);
    if let Some(run_as) = RunAs::for_vm() {
        assert_eq!(field("Uid:"), vec![run_as.uid.to_string(); 4]);
        assert_eq!(field("CapEff:"), ["0000000000000000"]);
        assert_eq!(field("Groups:").len(), 0);
    }

    vm.qmp.stop().await.unwrap();
    assert!(!vm.qmp.query_status().await.unwrap().running);
    vm.qmp.cont().await.unwrap();
    vm.qmp.quit().await.unwrap();
    assert!(vm.process.wait().await.unwrap().success());
}

#[tokio::test]
async fn the_data_network_reaches_out_but_not_the_hosts_loopback() {
    let host = HostNetwork::read();
    let Some(outside) = outside_address(&host).filter(|_| host.v4) else {
        eprintln!("skipped: the host has no IPv4 network");
        return;
    };
    let Some(mut vm) = boot(true).await else {
        return;
    };
    let link = vm.link.take().unwrap();
    let guest = &vm.guest;
    let find = format!("i=$(grep -lx {DATA_MAC} /sys/class/net/eth*/address | cut -d/ -f5)");
    let mut lines = vec![find, format!("ip link set $i mtu {} up", link.guest.mtu)];
    lines.extend(
        link.guest
            .addresses
            .iter()
            .map(|a| format!("ip addr add {a} dev $i")),
    );
    lines.extend(
        link.guest
            .gateways
            .iter()
            .map(|g| format!("ip route add default via {g}")),
    );
    // What a hostile root does to make its kernel send loopback addresses to a card.
    lines.push("for f in /proc/sys/net/ipv4/conf/*/route_localnet; do echo 1 >$f; done".into());
    lines.push("ip addr del 127.0.0.1/8 dev lo; ip -6 addr del ::1/128 dev lo".into());
    lines.push(format!(
        "ip route add 127.0.0.0/8 via {}",
        passt::GATEWAY_V4
    ));
    let said = guest.run(&lines.join("; ")).await;

    let answer = async |address: IpAddr, from: &str| {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        guest
            .run(&format!(
                "timeout 3 nc {from} {port} </dev/null >/dev/null 2>&1"
            ))
            .await;
        // A connection that was made waits in the listener's queue.
        let grace = std::time::Duration::from_millis(200);
        tokio::time::timeout(grace, listener.accept()).await.is_ok()
    };
    let reached = answer(outside, &outside.to_string()).await;
    assert!(reached, "the outside address was not reached: {said}");
    let loopback: IpAddr = "127.0.0.1".parse().unwrap();
    for from in ["127.0.0.1", passt::GATEWAY_V4, "169.254.193.2"] {
        assert!(
            !answer(loopback, from).await,
            "127.0.0.1 was reached as {from}"
        );
    }
    drop(link);
    vm.process.kill().await.unwrap();
}
