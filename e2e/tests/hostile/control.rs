//! The control socket and the processes that serve it.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use airlock_e2e::{
    Kind, TestSpace, airlock, command, on_both_kinds, run, sha256, wait_until, write_random,
};

use crate::upload;

on_both_kinds! {
    every_day: ;
    slow_on_vm: the_first_process_cannot_be_killed_from_inside, a_server_killed_again_and_again,
        a_space_that_falls_silent_can_be_ended;
}

const KILL_SERVE: &str = "kill -9 $(ps | grep '[g]uestd serve' | awk '{print $1}')";

fn the_first_process_cannot_be_killed_from_inside(kind: Kind) {
    let space = TestSpace::tiny(kind, "first");
    let line = "for s in KILL STOP SEGV ABRT HUP USR1 USR2 PIPE ALRM ILL BUS TSTP TTIN; do \
                kill -$s 1; done; echo sent";
    assert_eq!(space.sh(line), "sent");
    assert_eq!(space.sh("kill -KILL 1; kill -STOP 1; echo on"), "on");
    assert_eq!(space.state(), "running");
    // Everything else may be killed at once, the server of these commands included.
    let _ran = space.exec(&["sh", "-c", "kill -9 -1"]);
    wait_until("it answers again", || space.exec(&["true"]).code == 0);
    assert_eq!(space.state(), "running");
}

fn a_server_killed_again_and_again(kind: Kind) {
    let space = TestSpace::tiny(kind, "serve");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write_random(&file, 40 * 1024 * 1024, 31);
    for _ in 0..5 {
        let mut copy = command(["cp", file.to_str().unwrap(), &space.at("/root/f")]);
        let child = copy
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let _ran = space.exec(&["sh", "-c", KILL_SERVE]);
        let copied = airlock_e2e::Ran::from(child.wait_with_output().unwrap());
        if copied.code != 0 {
            assert!(copied.code == 1 || copied.code == 5, "{copied:?}");
            assert!(copied.stderr.contains("error:"), "{copied:?}");
        }
        wait_until("it answers again", || space.exec(&["true"]).code == 0);
    }
    let _ran = upload(&space, &file, "/root/f").expect(0);
    assert_eq!(space.sh("sha256sum /root/f | cut -d' ' -f1"), sha256(&file));
    assert_eq!(space.sh("ls -A /root | grep -c '^.airlock-'; true"), "0");
}

/// A stopped guestd answers nothing; the person can end the Space all the same.
fn a_space_that_falls_silent_can_be_ended(kind: Kind) {
    let mut space = TestSpace::tiny(kind, "silent");
    let mut stop = command(["exec", &space.name, "--", "sh", "-c"]);
    stop.arg("kill -STOP $(ps | grep '[g]uestd serve' | awk '{print $1}')");
    // This command's own end is never told.
    let mut child = airlock_e2e::start(&mut stop);
    let mut answer = std::process::Command::new("timeout");
    answer
        .args(["--signal=INT", "3"])
        .arg(airlock_e2e::program())
        .args(["exec", &space.name, "--", "true"])
        .env("AIRLOCK_HOME", airlock_e2e::home());
    wait_until("it falls silent", || run(&mut answer).code != 0);
    child.kill().unwrap();
    child.wait().unwrap();
    let started = Instant::now();
    let ran = airlock(["exec", "--timeout", "2", &space.name, "--", "true"]);
    assert_eq!(
        ran.code, 124,
        "a time-out holds without the Space's help: {ran:?}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
    let started = Instant::now();
    space.delete();
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
}

mod container_only {
    #[test]
    fn garbage_and_floods_at_guestds_socket() {
        super::garbage_and_floods_at_guestds_socket();
    }
}

/// From the host's side, where only the person gets at it: what comes in broken stays harmless.
fn garbage_and_floods_at_guestds_socket() {
    let space = TestSpace::tiny(Kind::Container, "garbage");
    let socket = space.dir().join("guestd.sock");
    let mut held = Vec::new();
    for round in 0..600_u32 {
        let Ok(mut stream) = UnixStream::connect(&socket) else {
            break;
        };
        stream
            .set_write_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        let noise: Vec<u8> = (0..1000_u32)
            .map(|i| (i.wrapping_mul(round | 1).wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        // It may be closed in the middle: that is one right answer.
        let _ = stream.write_all(&noise);
        if round % 2 == 0 {
            held.push(stream);
        }
    }
    assert_eq!(
        space.sh("echo alive"),
        "alive",
        "while {} are held",
        held.len()
    );
    drop(held);
    wait_until("it answers", || space.exec(&["true"]).code == 0);
    assert_eq!(space.state(), "running");
}
