//! Every process of a container Space dies at a bad moment, and nothing of the Space stays.
//!
//! That nothing stays is looked for by each [`TestSpace`] when it is dropped.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on shall end, and say why"
)]

use std::process::Stdio;

use airlock_e2e::processes::{Process, all_pids, children, family, kill9, wait_for_end};
use airlock_e2e::{Kind, Ran, TestSpace, airlock, command, home, name, wait_until};

mod container_only {
    #[test]
    fn each_process_killed_while_it_runs() {
        super::each_process_killed_while_it_runs();
    }

    #[test]
    fn each_process_killed_while_it_starts() {
        super::each_process_killed_while_it_starts();
    }

    #[test]
    fn a_crashed_space_starts_the_moment_it_is_seen() {
        super::a_crashed_space_starts_the_moment_it_is_seen();
    }

    #[test]
    fn all_processes_killed_at_once_and_deleted() {
        super::all_processes_killed_at_once_and_deleted();
    }
}

fn keeper_of(space: &TestSpace) -> u64 {
    space.keeper_state()["keeper"]["pid"].as_u64().unwrap()
}

fn first_of(space: &TestSpace) -> u64 {
    space.keeper_state()["machine"]["pid"].as_u64().unwrap()
}

/// Finds one of a Space's processes on the host.
type PidOf = fn(&TestSpace) -> u64;

fn each_process_killed_while_it_runs() {
    let space = TestSpace::tiny(Kind::Container, "crash");
    let minder = |space: &TestSpace| {
        let first = first_of(space);
        let is_above = |pid: &u64| children(*pid).contains(&first);
        children(keeper_of(space))
            .into_iter()
            .find(is_above)
            .unwrap()
    };
    let guestd = |space: &TestSpace| children(first_of(space))[0];
    let who: [(&str, PidOf); 4] = [
        ("keeper", keeper_of),
        ("minder", minder),
        ("first process", first_of),
        ("guestd", guestd),
    ];
    for (what, pid_of) in who {
        let file = format!("echo {what} > /root/kept");
        space.sh(&file);
        // A command that will not end by itself, and one that left its session.
        let mut child = airlock_e2e::start(&mut command([
            "exec",
            &space.name,
            "--",
            "sh",
            "-c",
            "setsid sleep 7531 & sleep 7531",
        ]));
        wait_until("both run", || {
            space.sh("ps | grep -c '[s]leep 7531'; true") == "2"
        });
        let all: Vec<Process> = family(keeper_of(&space))
            .into_iter()
            .filter_map(Process::of)
            .collect();
        kill9(pid_of(&space));
        wait_for_end(what, &all);
        let code = child.wait().unwrap().code();
        assert_eq!(code, Some(125), "{what}: the caller is told");
        let info = space.info();
        assert_eq!(info["state"], "crashed", "{what}: {info}");
        assert!(
            info["detail"]
                .as_str()
                .is_some_and(|detail| !detail.is_empty())
        );
        let _ran = airlock(["spaces", "start", &space.name]).expect(0);
        assert_eq!(space.sh("cat /root/kept"), what, "files are kept");
    }
}

/// The moments in between: a runtime that dies half-way leaves groups and mounts of its own.
fn each_process_killed_while_it_starts() {
    for what in [
        "runc", "runc", "runc", "minder", "minder", "keeper", "keeper",
    ] {
        let name = name("early");
        let mut space = TestSpace::adopt(name.clone(), home());
        let mut create = command(["spaces", "create", "tiny", "--kind", "container", "--name"]);
        create
            .arg(&name)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child = create.spawn().unwrap();
        let creator = u64::from(child.id());
        let found = loop {
            space.look();
            if let Some(pid) = find(&space, creator, what) {
                break Some(pid);
            }
            if !airlock_e2e::is_alive(creator) {
                break None;
            }
        };
        if let Some(pid) = found {
            let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            // It may just have ended by itself.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let ran = Ran::from(child.wait_with_output().unwrap());
        println!(
            "{what}: found {}, {} {}",
            found.is_some(),
            ran.code,
            ran.stderr.trim()
        );
        if ran.code == 0 {
            // Killed a moment after it was made, or not at all.
            wait_until("its state settles", || {
                ["running", "crashed"].contains(&space.state().as_str())
            });
        } else {
            assert!(ran.stderr.contains("error:"), "{ran:?}");
            assert!(!space.dir().exists(), "{what}: a half-made Space stays");
        }
    }
}

/// A process of the Space's creation.
fn find(space: &TestSpace, creator: u64, what: &str) -> Option<u64> {
    let words = |pid: u64| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).replace('\0', " ")
    };
    let state = std::fs::read(space.dir().join("state.json")).ok();
    let state: Option<serde_json::Value> =
        state.and_then(|state| serde_json::from_slice(&state).ok());
    let keeper = state
        .as_ref()
        .and_then(|state| state["keeper"]["pid"].as_u64());
    // Before there is a state the keeper is a child of the creator, or has left it.
    let roots = keeper.map_or_else(|| vec![creator], |keeper| vec![keeper]);
    let mut all: Vec<u64> = roots.into_iter().flat_map(family).collect();
    if what == "runc" && all.is_empty() {
        all = all_pids();
    }
    all.into_iter().find(|pid| {
        let words = words(*pid);
        match what {
            "keeper" => words.contains(" keeper") && *pid != creator,
            "minder" => words.contains("minder "),
            _ => words.contains("runc") && words.contains("--bundle"),
        }
    })
}

fn all_processes_killed_at_once_and_deleted() {
    let mut space = TestSpace::tiny(Kind::Container, "all");
    space.look();
    let all = family(keeper_of(&space));
    for pid in all.iter().rev() {
        let pid = rustix::process::Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap();
        // Those below die with those above.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    space.delete();
}

/// The keeper says that the Space crashed before it is gone itself.
fn a_crashed_space_starts_the_moment_it_is_seen() {
    let mut space = TestSpace::tiny(Kind::Container, "again");
    for _ in 0..10 {
        space.look();
        kill9(first_of(&space));
        while space.state() != "crashed" {}
        let _ran = airlock(["spaces", "start", &space.name]).expect(0);
    }
    assert_eq!(space.sh("echo alive"), "alive");
}
