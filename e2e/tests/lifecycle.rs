//! A Space's life, and what happens when somebody dies in the middle of it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on shall end, and say why"
)]

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use airlock_e2e::{
    TestSpace, airlock, command, command_in, home, is_alive, name, run, signal, start, wait_until,
};
use rustix::process::Signal;

fn pid_of(state: &serde_json::Value, what: &str) -> u64 {
    state[what]["pid"]
        .as_u64()
        .unwrap_or_else(|| panic!("no {what} in {state}"))
}

fn kill9(pid: u64) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn create_list_stop_start_delete() {
    let space = TestSpace::tiny("life");
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

    let qemu = pid_of(&space.keeper_state(), "machine");
    let _ran = airlock(["spaces", "stop", &space.name]).expect(0);
    assert_eq!(space.state(), "stopped");
    assert!(!is_alive(qemu), "the machine runs on");
    let _ran = airlock(["exec", &space.name, "--", "true"])
        .expect(125)
        .says("not running");
    let _ran = airlock(["cp", &space.at("/etc/passwd"), "-"])
        .expect(5)
        .says("not running");

    let _ran = airlock(["spaces", "start", &space.name]).expect(0);
    assert_eq!(space.state(), "running");
    assert_eq!(space.sh("echo back"), "back");

    let _ran = airlock(["spaces", "delete", &space.name]).expect(0);
    assert!(!space.dir().exists());
    let _ran = airlock(["spaces", "info", &space.name]).expect(3);
    // Deleting what is not there is no error: the wish is fulfilled.
    let _ran = airlock(["spaces", "delete", &space.name]).expect(0);
}

#[test]
fn a_space_outlives_its_maker_and_holds_none_of_its_descriptors() {
    let name = name("pipe");
    // `create | cat`: cat sees the end only when nobody holds the pipe any more.
    let mut create = command(["spaces", "create", "tiny", "--name", &name]);
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

#[test]
fn a_killed_keeper_takes_the_machine_along_and_the_space_can_start_again() {
    let space = TestSpace::tiny("keeper");
    let state = space.keeper_state();
    let (keeper, qemu) = (pid_of(&state, "keeper"), pid_of(&state, "machine"));
    kill9(keeper);
    wait_until("keeper and machine are gone", || {
        !is_alive(keeper) && !is_alive(qemu)
    });
    let info = space.info();
    assert_eq!(info["state"], "crashed");
    assert!(info["detail"].as_str().unwrap().contains("died"), "{info}");
    let _ran = airlock(["exec", &space.name, "--", "true"])
        .expect(125)
        .says("crashed");
    let _ran = airlock(["spaces", "start", &space.name]).expect(0);
    assert_eq!(space.sh("echo alive"), "alive");
}

#[test]
fn a_killed_machine_is_a_crash_that_delete_and_start_handle() {
    let space = TestSpace::tiny("machine");
    let state = space.keeper_state();
    kill9(pid_of(&state, "machine"));
    let keeper = pid_of(&state, "keeper");
    wait_until("the keeper ends", || !is_alive(keeper));
    assert_eq!(space.state(), "crashed");
    let _ran = airlock(["spaces", "start", &space.name]).expect(0);
    assert_eq!(space.state(), "running");
}

#[test]
fn a_stopped_keeper_does_not_keep_delete_waiting() {
    let space = TestSpace::tiny("frozen");
    let keeper = pid_of(&space.keeper_state(), "keeper");
    let pid = rustix::process::Pid::from_raw(i32::try_from(keeper).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    let _ran = airlock(["spaces", "delete", &space.name]).expect(0);
    assert!(!is_alive(keeper));
}

#[test]
fn interrupted_creation_leaves_nothing() {
    for how in [Signal::INT, Signal::KILL] {
        let name = name("int");
        let space = TestSpace::adopt(name.clone(), home());
        let mut child = start(&mut command(["spaces", "create", "tiny", "--name", &name]));
        wait_until("the machine boots", || {
            space.dir().join("state.json").exists()
        });
        let keeper = pid_of(&space.keeper_state(), "keeper");
        signal(&child, how);
        let status = child.wait().unwrap();
        if how == Signal::INT {
            assert_eq!(status.code(), Some(130));
        }
        wait_until("the keeper ends", || !is_alive(keeper));
        wait_until("the files go", || !space.dir().exists());
    }
}

#[test]
fn power_off_inside_is_a_clean_stop() {
    let space = TestSpace::tiny("off");
    let keeper = pid_of(&space.keeper_state(), "keeper");
    // The connection may break before the command's end is reported.
    let _ran = space.exec(&["kill", "-TERM", "1"]);
    wait_until("the keeper ends", || !is_alive(keeper));
    assert_eq!(space.state(), "stopped", "{}", space.info());
}

#[test]
fn files_and_sockets_are_private() {
    let space = TestSpace::tiny("private");
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
    // QEMU of a root user runs as somebody else.
    if rustix::process::geteuid().is_root() {
        let status = format!("/proc/{}/status", pid_of(&state, "machine"));
        let status = std::fs::read_to_string(status).unwrap();
        let uid = status
            .lines()
            .find_map(|line| line.strip_prefix("Uid:"))
            .unwrap();
        assert!(uid.split_whitespace().all(|uid| uid != "0"), "{uid}");
    }
}

#[test]
fn a_home_with_a_path_longer_than_a_socket_address_works() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("h".repeat(100)).join("i".repeat(60));
    std::fs::create_dir_all(&home).unwrap();
    let name = name("long");
    let _ran = run(&mut command_in(
        &home,
        ["spaces", "create", "tiny", "--name", &name],
    ))
    .expect(0);
    let space = TestSpace::adopt(name, home);
    assert_eq!(space.sh("echo deep"), "deep");
}

#[test]
fn what_cannot_be_made_is_refused_by_its_exit_code() {
    let create = |options: &[&str]| airlock([&["spaces", "create", "tiny"], options].concat());
    let _ran = create(&["--kind", "container"]).expect(4).says("container");
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
