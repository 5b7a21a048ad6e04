//! System calls, kernel files, sockets and descriptors.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::Command;

use airlock_e2e::{Kind, TestSpace, home, name, run, wait_until};
use serde_json::json;

use crate::upload;

/// The attacks, which run inside and outside.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile/attacks.py");

/// Those that do their harm outside, as root in namespaces that are thrown away.
const WORK_OUTSIDE: &[&str] = &[
    "mount_proc",
    "mount_tmpfs",
    "bind_over_proc_sys",
    "make_a_node_1:1",
    "unmount_/proc",
    "new_mount_calls",
    "clone_the_tree",
    "find_the_hosts_files",
    "leave_by_chroot",
    "unshare_user",
    "unshare_net",
    "clone_user",
    "clone3_with_a_user_namespace",
    "gain_by_a_setuid_program",
    "become_an_unmapped_user",
    "give_a_file_to_an_unmapped_user",
    "set_attribute_trusted.x",
    "set_priority_above_others",
    "load_a_kernel_program",
    "measure_everything",
    "handle_page_faults",
    "use_io_uring",
    "make_a_key",
    "read_keyrings",
    "read_physical_addresses",
    "learn_kernel_addresses",
    "read_the_kernels_log",
    "watch_the_file_system",
    "open_a_file_by_handle",
    "set_the_host_name",
    "pass_the_filter_by_32_bit_calls",
    "pass_the_filter_by_a_tracer",
    "socket_AF_INET:SOCK_RAW:1",
    "socket_AF_PACKET:SOCK_RAW:768",
    "add_an_address",
    "take_an_interface_down",
    "compare_kernel_objects",
];

/// Those that need the host's processes, files and network, and so no namespaces around them.
const WORK_ON_THE_HOST: &[&str] = &[
    "kill_a_process_of_the_host",
    "write_into_a_process_of_the_host",
    "trace_a_process_of_the_host",
    "hold_a_process_of_the_host",
    "see_processes_of_the_host",
    "reach_the_hosts_abstract_socket",
    "reach_the_hosts_loopback",
];

/// What is on the host for the attacks to find.
struct Bait {
    folder: tempfile::TempDir,
    victim: std::process::Child,
}

impl Bait {
    fn lay() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let marker = folder.path().join("marker");
        std::fs::write(&marker, "of the host").unwrap();
        let abstract_name = name("bait");
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        std::thread::spawn(move || listener.incoming().for_each(drop));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                // The attacker may be gone.
                let _ = stream.write_all(b"host\n");
            }
        });
        let word = "86421357";
        let victim = Command::new("sleep").arg(word).spawn().unwrap();
        let device = |path: &Path| {
            let device = std::fs::metadata(path).unwrap().dev();
            [rustix::fs::major(device), rustix::fs::minor(device)]
        };
        let devices: Vec<_> = [
            Path::new("/"),
            &home(),
            folder.path(),
            Path::new("/sys/fs/cgroup"),
        ]
        .into_iter()
        .map(device)
        .collect();
        let facts = json!({
            "disk": device(&home()),
            "marker": marker,
            "victim": victim.id(),
            "victim_word": word,
            "abstract": abstract_name,
            "port": port,
            "devices": devices,
        });
        std::fs::write(folder.path().join("facts.json"), facts.to_string()).unwrap();
        Self { folder, victim }
    }

    fn facts(&self) -> std::path::PathBuf {
        self.folder.path().join("facts.json")
    }

    /// Runs attacks outside of the wall.
    fn outside(&self, wrap: &[&str], names: &[&str]) -> BTreeMap<String, (String, String)> {
        let mut command = Command::new("env");
        command.args(wrap).arg("python3").arg(SCRIPT);
        outcomes(&run(command.arg(self.facts()).args(names)).text())
    }
}

impl Drop for Bait {
    fn drop(&mut self) {
        // It was started here, and is there still.
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

/// Name -> (outcome, how).
fn outcomes(text: &str) -> BTreeMap<String, (String, String)> {
    let line = |line: &str| {
        let mut parts = line.splitn(3, '\t').map(str::to_owned);
        Some((
            parts.next()?,
            (parts.next()?, parts.next().unwrap_or_default()),
        ))
    };
    text.lines().filter_map(line).collect()
}

mod container_only {
    #[test]
    fn every_attack_is_refused_by_the_default_network_too() {
        super::every_attack_is_refused("default");
    }

    #[test]
    fn every_attack_is_refused_without_a_network() {
        super::every_attack_is_refused("none");
    }

    #[test]
    fn the_attacks_are_real() {
        super::the_attacks_are_real();
    }

    #[test]
    fn commands_have_no_descriptors_but_their_streams() {
        super::commands_have_no_descriptors_but_their_streams();
    }
}

fn every_attack_is_refused(network: &str) {
    let bait = Bait::lay();
    let options = ["--network", network];
    let space = TestSpace::with(Kind::Container, "attack", "linux", &options);
    let _ran = upload(&space, Path::new(SCRIPT), "/root/attacks.py").expect(0);
    let _ran = upload(&space, &bait.facts(), "/root/facts.json").expect(0);
    let ran = space
        .exec(&["python3", "/root/attacks.py", "/root/facts.json"])
        .expect(0);
    let found = outcomes(&ran.text());
    assert!(
        found.len() > 140,
        "only {} attacks ran: {ran:?}",
        found.len()
    );
    let done: Vec<_> = found
        .iter()
        .filter(|(_, (how, _))| how != "refused")
        .collect();
    assert!(done.is_empty(), "{done:#?}");
    println!("{} attacks refused", found.len());
    assert_eq!(space.sh("echo alive"), "alive");
}

/// The same functions do their harm where there is no wall.
fn the_attacks_are_real() {
    if !rustix::process::geteuid().is_root() {
        println!("not root: what root could do outside is not shown");
        return;
    }
    let bait = Bait::lay();
    let throwaway = [
        "unshare",
        "-m",
        "-p",
        "-f",
        "-n",
        "-u",
        "-i",
        "--mount-proc",
    ];
    let mut found = bait.outside(&throwaway, WORK_OUTSIDE);
    found.extend(bait.outside(&[], WORK_ON_THE_HOST));
    for attack in WORK_OUTSIDE.iter().chain(WORK_ON_THE_HOST) {
        let outcome = found.get(*attack);
        let is_done = outcome.is_some_and(|(outcome, how)| outcome == "DONE" && how.is_empty());
        assert!(is_done, "{attack} outside: {outcome:?}");
    }
}

/// One release of runc leaves a descriptor of the host's cgroup folder (CVE-2024-21626), from
/// which `..` leads to every file of the host.
fn commands_have_no_descriptors_but_their_streams() {
    let space = TestSpace::with(Kind::Container, "fds", "linux", &[]);
    let list = "import os, sys
for fd in range(3, 4096):
    try: print(fd, os.readlink(f'/proc/self/fd/{fd}'))
    except OSError: pass";
    assert_eq!(crate::python(&space, list, &[]).expect(0).text(), "");
    // What the first process has is the lane, guestd's socket, its settings and its streams.
    let first = space.sh("readlink /proc/1/fd/* | sed 's/:.*//' | sort -u | tr '\\n' ' '");
    assert!(
        first
            .split(' ')
            .all(|what| ["/memfd", "pipe", "socket", "anon_inode"].contains(&what)),
        "{first}"
    );
    for fd in 3..12 {
        for process in ["self", "1"] {
            let way = format!("/proc/{process}/fd/{fd}/../../..");
            let ran = airlock_e2e::airlock([
                "exec",
                &space.name,
                "--cwd",
                &way,
                "--",
                "cat",
                "etc/hostname",
            ]);
            assert_eq!(ran.code, 125, "{way}: {ran:?}");
        }
    }
    wait_until("it lives", || space.exec(&["true"]).code == 0);
}
