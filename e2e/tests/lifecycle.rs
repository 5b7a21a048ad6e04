//! A Space's life, and what happens when somebody dies in the middle of it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on shall end, and say why"
)]

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use airlock_e2e::processes::{Process, family, kill9, wait_for_end};
use airlock_e2e::{
    Kind, TestSpace, airlock, command, command_in, home, is_alive, name, on_both_kinds, run,
    signal, start, wait_until,
};
use rustix::process::Signal;

on_both_kinds! {
    every_day:
        create_list_stop_start_delete,
        a_killed_keeper_takes_the_space_along_and_it_can_start_again,
        files_and_sockets_are_private;
    slow_on_vm:
        a_space_outlives_its_maker_and_holds_none_of_its_descriptors,
        a_killed_first_process_is_a_crash_that_delete_and_start_handle,
        a_stopped_keeper_does_not_keep_delete_waiting,
        interrupted_creation_leaves_nothing,
        power_off_inside_is_a_clean_stop,
        a_home_with_a_path_longer_than_a_socket_address_works,
        many_at_once,
        two_starts_at_once_make_one_space;
}

mod vm_only {
    use airlock_e2e::{Kind, TestSpace};

    /// The accelerator that executes a machine, and why it was chosen.
    #[test]
    fn a_machine_says_what_executes_it() {
        let space = TestSpace::tiny(Kind::Vm, "accel");
        let info = space.info();
        assert_eq!(info["runtime"], "qemu", "{info}");
        let accel = info["accel"].as_str().unwrap_or_default();
        assert!(["kvm", "hvf", "tcg"].contains(&accel), "{info}");
        assert!(
            info["accel_reason"]
                .as_str()
                .is_some_and(|reason| !reason.is_empty())
        );
    }
}

fn pid_of(state: &serde_json::Value, what: &str) -> u64 {
    state[what]["pid"]
        .as_u64()
        .unwrap_or_else(|| panic!("no {what} in {state}"))
}

fn create_list_stop_start_delete(kind: Kind) {
    let space = TestSpace::tiny(kind, "life");
    assert_eq!(space.state(), "running");
    let listed = airlock(["spaces", "ls", "--json"]).expect(0).json();
    let listed = listed
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["name"] == space.name.as_str());
    assert_eq!(listed.unwrap()["state"], "running");
    assert_eq!(space.sh("hostname"), space.name);

    let _ran = airlock(["spaces", "create", "tiny", "--name", &space.name])
        .expect(1)
        .says("there is a Space")
        .says("hint:");
    let _ran = airlock(["spaces", "start", &space.name])
        .expect(1)
        .says("already");

    assert_eq!(space.info()["kind"], kind.word());
    space.sh("echo kept > /root/kept");
    let all = everything_of(&space);
    let _ran = airlock(["spaces", "stop", &space.name]).expect(0);
    assert_eq!(space.state(), "stopped");
    assert!(!all.iter().any(|process| process.is_alive()), "it runs on");
    let _ran = airlock(["exec", &space.name, "--", "true"])
        .expect(125)
        .says("not running");
    let _ran = airlock(["cp", &space.at("/etc/passwd"), "-"])
        .expect(5)
        .says("not running");

    let _ran = airlock(["spaces", "start", &space.name]).expect(0);
    assert_eq!(space.state(), "running");
    assert_eq!(space.sh("echo back"), "back");
    match kind {
        Kind::Container => assert_eq!(space.sh("cat /root/kept"), "kept"),
        // This image lives in a machine's memory; the `linux` image keeps files (tests/linux.rs).
        Kind::Vm => {}
    }

    let _ran = airlock(["spaces", "delete", &space.name]).expect(0);
    assert!(!space.dir().exists());
    let _ran = airlock(["spaces", "info", &space.name]).expect(3);
    // Deleting what is not there is no error: the wish is fulfilled.
    let _ran = airlock(["spaces", "delete", &space.name]).expect(0);
}

fn a_space_outlives_its_maker_and_holds_none_of_its_descriptors(kind: Kind) {
    let name = name("pipe");
    // `create | cat`: cat sees the end only when nobody holds the pipe any more.
    let mut create = command(["spaces", "create", "tiny", "--name", &name]);
    create.args(["--kind", kind.word()]);
    let mut child = create
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let space = TestSpace::adopt(name, home());
    let out = child.stdout.take().unwrap();
    let cat = std::process::Command::new("cat")
        .stdin(out)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&cat.stdout).trim(), space.name);
    assert!(child.wait().unwrap().success());
    let state = space.keeper_state();
    let keeper = pid_of(&state, "keeper");
    assert!(is_alive(keeper));
    for fd in 0..=2 {
        let target = std::fs::read_link(format!("/proc/{keeper}/fd/{fd}")).unwrap();
        assert_eq!(target, std::path::Path::new("/dev/null"), "descriptor {fd}");
    }
    assert_eq!(space.state(), "running");
}

fn a_killed_keeper_takes_the_space_along_and_it_can_start_again(kind: Kind) {
    let space = TestSpace::tiny(kind, "keeper");
    let _ran = airlock(["cp", "/etc/os-release", &space.at("/root/kept")]).expect(0);
    let all = everything_of(&space);
    kill9(pid_of(&space.keeper_state(), "keeper"));
    wait_for_end("the keeper and all it had are gone", &all);
    let info = space.info();
    assert_eq!(info["state"], "crashed");
    assert!(info["detail"].as_str().unwrap().contains("died"), "{info}");
    let _ran = airlock(["exec", &space.name, "--", "true"])
        .expect(125)
        .says("crashed");
    let _ran = airlock(["spaces", "start", &space.name]).expect(0);
    assert_eq!(space.sh("echo alive"), "alive");
    match kind {
        Kind::Container => {
            let kept = std::fs::read_to_string("/etc/os-release").unwrap();
            assert_eq!(space.sh("cat /root/kept"), kept.trim_end());
        }
        Kind::Vm => {}
    }
}

/// The keeper's processes and those of the Space.
fn everything_of(space: &TestSpace) -> Vec<Process> {
    let keeper = pid_of(&space.keeper_state(), "keeper");
    family(keeper).into_iter().filter_map(Process::of).collect()
}

fn a_killed_first_process_is_a_crash_that_delete_and_start_handle(kind: Kind) {
    let space = TestSpace::tiny(kind, "machine");
    let state = space.keeper_state();
    kill9(pid_of(&state, "machine"));
    let keeper = pid_of(&state, "keeper");
    wait_until("the keeper ends", || !is_alive(keeper));
    assert_eq!(space.state(), "crashed");
    let _ran = airlock(["spaces", "start", &space.name]).expect(0);
    assert_eq!(space.state(), "running");
}

fn a_stopped_keeper_does_not_keep_delete_waiting(kind: Kind) {
    let space = TestSpace::tiny(kind, "frozen");
    let keeper = pid_of(&space.keeper_state(), "keeper");
    let pid = rustix::process::Pid::from_raw(i32::try_from(keeper).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    let _ran = airlock(["spaces", "delete", &space.name]).expect(0);
    assert!(!is_alive(keeper));
}

/// At moments that no two runs share: a container is made in less than a tenth of a second.
fn interrupted_creation_leaves_nothing(kind: Kind) {
    let (rounds, longest) = match kind {
        Kind::Container => (24, Duration::from_millis(120)),
        Kind::Vm => (4, Duration::from_secs(6)),
    };
    let mut interrupted = 0;
    for round in 0..rounds {
        let how = [Signal::INT, Signal::KILL][round % 2];
        let name = name("int");
        let mut space = TestSpace::adopt(name.clone(), home());
        let create = ["spaces", "create", "tiny", "--name", &name, "--kind"];
        let mut child = start(command(create).arg(kind.word()));
        let moment = Instant::now() + random_part_of(longest);
        while Instant::now() < moment {
            space.look();
        }
        signal(&child, how);
        let status = child.wait().unwrap();
        match (how, status.code()) {
            (_, Some(0)) => continue,
            (Signal::INT, code) => assert!(
                code == Some(130) || status.signal() == Some(Signal::INT.as_raw()),
                "{status}"
            ),
            (_, _) => assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "{status}"),
        }
        interrupted += 1;
        if how == Signal::INT {
            assert!(!space.dir().exists(), "round {round}: the files stay");
            continue;
        }
        // Killed before there was a keeper, its name stays, and the person is told why. Killed
        // after the keeper had it running, it is a whole Space. Everything else goes.
        wait_until("the files go, or its state is settled", || {
            !space.dir().exists() || {
                let ran = airlock(["spaces", "info", &name, "--json"]);
                // Looked at while it goes, there is half of it.
                ran.code != 0
                    || ran.json()["state"] == "running"
                    || ran.text().contains("its creation was cut short")
            }
        });
    }
    assert!(interrupted > 0, "every creation was faster");
}

/// Killed right at its start, a creation leaves an empty folder.
#[test]
fn a_creation_that_was_cut_short_is_told_as_such() {
    let space = TestSpace::adopt(name("short"), home());
    std::fs::create_dir(space.dir()).unwrap();
    let detail = space.info()["detail"].to_string();
    assert!(detail.contains("cut short"), "{detail}");
    let listed = airlock(["spaces", "ls"]).expect(0).text();
    assert!(listed.contains(&space.name), "{listed}");
}

fn random_part_of(longest: Duration) -> Duration {
    let mut bytes = [0; 8];
    let mut random = std::fs::File::open("/dev/urandom").unwrap();
    random.read_exact(&mut bytes).unwrap();
    let part = u64::from_le_bytes(bytes) % u64::try_from(longest.as_micros()).unwrap();
    Duration::from_micros(part)
}

fn many_at_once(kind: Kind) {
    let count = match kind {
        Kind::Container => 8,
        Kind::Vm => 3,
    };
    let spaces: Vec<_> = (0..count)
        .map(|_| TestSpace::adopt(name("many"), home()))
        .collect();
    let creations: Vec<_> = spaces
        .iter()
        .map(|space| {
            let create = ["spaces", "create", "tiny", "--name", &space.name, "--kind"];
            let mut command = command(create);
            command
                .arg(kind.word())
                .stdout(Stdio::null())
                .stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    for child in creations {
        let _ran = airlock_e2e::Ran::from(child.wait_with_output().unwrap()).expect(0);
    }
    for space in &spaces {
        assert_eq!(space.sh("hostname"), space.name);
    }
}

fn two_starts_at_once_make_one_space(kind: Kind) {
    let space = TestSpace::tiny(kind, "twice");
    let _ran = airlock(["spaces", "stop", &space.name]).expect(0);
    let starts: Vec<_> = (0..3)
        .map(|_| start(&mut command(["spaces", "start", &space.name])))
        .collect();
    let codes = starts.into_iter().map(|mut child| child.wait().unwrap());
    let ok = codes.filter(std::process::ExitStatus::success).count();
    assert_eq!(ok, 1, "the others are told that it runs already");
    assert_eq!(space.sh("echo one"), "one");
    let keepers = airlock_e2e::processes::all_pids()
        .into_iter()
        .filter(|pid| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let cwd = std::fs::read_link(format!("/proc/{pid}/cwd"));
            let words = String::from_utf8_lossy(&words).into_owned();
            words.contains("keeper")
                && (words.contains(&space.name) || cwd.is_ok_and(|cwd| cwd == space.dir()))
        })
        .count();
    assert!(keepers <= 1, "{keepers} keepers");
}

fn power_off_inside_is_a_clean_stop(kind: Kind) {
    let space = TestSpace::tiny(kind, "off");
    let keeper = pid_of(&space.keeper_state(), "keeper");
    // The connection may break before the command's end is reported.
    let _ran = space.exec(&["kill", "-TERM", "1"]);
    wait_until("the keeper ends", || !is_alive(keeper));
    assert_eq!(space.state(), "stopped", "{}", space.info());
}

fn files_and_sockets_are_private(kind: Kind) {
    let space = TestSpace::tiny(kind, "private");
    let mode = |path: &std::path::Path| {
        std::fs::symlink_metadata(path)
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(&home()), 0o700);
    assert_eq!(mode(&space.dir()), 0o700);
    assert_eq!(mode(&space.dir().join("keeper.sock")), 0o600);
    let state = space.keeper_state();
    for process in ["keeper", "machine"] {
        let pid = pid_of(&state, process);
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        for bytes in [words, environment] {
            // A token is 64 hexadecimal digits; no word of that length may be there.
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let secret = text
                .split(|c: char| !c.is_ascii_hexdigit())
                .any(|word| word.len() >= 64);
            assert!(!secret, "something like a token in {text:?}");
        }
    }
    // QEMU of a root user runs as somebody else, and so does everything in a container. The
    // process above a container is root, and may do nothing that only root may.
    if rustix::process::geteuid().is_root() {
        let machine = pid_of(&state, "machine");
        let inside: Vec<u64> = match kind {
            Kind::Vm => family(machine),
            Kind::Container => {
                let none = "0000000000000000";
                assert_eq!(status_field(machine, "CapEff:"), none);
                assert_eq!(status_field(machine, "CapPrm:"), none);
                family(machine).split_off(1)
            }
        };
        assert!(!inside.is_empty());
        for pid in inside {
            let uid = status_field(pid, "Uid:");
            assert!(uid.split_whitespace().all(|uid| uid != "0"), "{uid}");
        }
    }
}

fn status_field(pid: u64, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim().to_owned()
}

fn a_home_with_a_path_longer_than_a_socket_address_works(kind: Kind) {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("h".repeat(100)).join("i".repeat(60));
    std::fs::create_dir_all(&home).unwrap();
    let name = name("long");
    let _ran = run(&mut command_in(
        &home,
        [
            "spaces",
            "create",
            "tiny",
            "--name",
            &name,
            "--kind",
            kind.word(),
        ],
    ))
    .expect(0);
    let space = TestSpace::adopt(name, home);
    assert_eq!(space.sh("echo deep"), "deep");
}

#[test]
fn what_cannot_be_made_is_refused_by_its_exit_code() {
    let create = |options: &[&str]| airlock([&["spaces", "create", "tiny"], options].concat());
    let _ran = create(&["--kind", "container", "--runtime", "qemu"])
        .expect(2)
        .says("container");
    let _ran = create(&["--kind", "container", "--accel", "tcg"])
        .expect(2)
        .says("container");
    let _ran = create(&["--kind", "vm", "--runtime", "runc"])
        .expect(2)
        .says("runc");
    let _ran = create(&["--on", "elsewhere"]).expect(4);
    let _ran = create(&["--name", "Upper"]).expect(2);
    let _ran = create(&["--cpus", "0"]).expect(2);
    let _ran = create(&["--memory-mb", "1"]).expect(2).says("--memory-mb");
    let _ran = airlock(["spaces", "create", "nosuchimage"])
        .expect(3)
        .says("nosuchimage");
    let _ran = airlock(["spaces", "stop", "nosuchspace"])
        .expect(3)
        .says("nosuchspace");
    let _ran = airlock(["spaces", "start", "nosuchspace"]).expect(3);
    let _ran = airlock(["exec", "nosuchspace", "--", "true"])
        .expect(125)
        .says("nosuchspace");
}
