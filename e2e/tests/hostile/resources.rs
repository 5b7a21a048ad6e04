//! Hunger: for memory, processes, files in memory, and the console.

use std::time::{Duration, Instant};

use airlock_e2e::{Kind, TestSpace, airlock, on_both_kinds, wait_until};

use crate::{python, python_command};

on_both_kinds! {
    every_day: ;
    slow_on_vm: a_memory_hog_dies_alone, a_fork_bomb_stays_in_its_space,
        a_flooded_console_is_bounded;
}

fn a_memory_hog_dies_alone(kind: Kind) {
    let space = TestSpace::with(kind, "hog", "linux", &["--memory-mb", "512"]);
    let hog = "x = []
while True: x.append(b'x' * (1 << 20))";
    let ran = python(&space, hog, &[]);
    assert_eq!(ran.code, 137, "{ran:?}");
    assert_eq!(space.sh("echo alive"), "alive");
    let many = "import os, time
for i in range(100):
    if os.fork() == 0:
        x = b'x' * (16 << 20)
        time.sleep(5)
        os._exit(0)
time.sleep(3)";
    let _ran = python(&space, many, &[]);
    wait_until("it answers again", || space.exec(&["true"]).code == 0);
    assert_eq!(space.state(), "running");
}

fn a_fork_bomb_stays_in_its_space(kind: Kind) {
    let mut space = TestSpace::with(
        kind,
        "bomb",
        "linux",
        &["--memory-mb", "512", "--cpus", "1"],
    );
    let bomb = "import os
while True:
    try: os.fork()
    except OSError: pass";
    let mut child = airlock_e2e::start(&mut python_command(&space, bomb, &[]));
    // All that time the host answers.
    let end = Instant::now() + Duration::from_secs(6);
    while Instant::now() < end {
        let started = Instant::now();
        let _ran = airlock(["spaces", "info", &space.name]).expect(0);
        assert!(
            started.elapsed() < Duration::from_secs(3),
            "the host does not answer"
        );
    }
    space.look();
    let started = Instant::now();
    let _ran = airlock(["spaces", "stop", "--force", &space.name]).expect(0);
    println!("stopped after {:?}", started.elapsed());
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
    child.wait().unwrap();
    let _ran = airlock(["spaces", "start", &space.name]).expect(0);
    assert_eq!(space.sh("echo alive"), "alive");
}

fn a_flooded_console_is_bounded(kind: Kind) {
    let space = TestSpace::tiny(kind, "flood");
    let console = match kind {
        Kind::Container => "/proc/1/fd/1",
        Kind::Vm => "/dev/console",
    };
    let line =
        format!("yes 0123456789012345678901234567890123456789 | head -c 60000000 > {console}");
    let ran = space.exec(&["timeout", "60", "sh", "-c", &line]);
    match kind {
        // An emulated serial line is slow; the time-out may come first.
        Kind::Vm => assert!(ran.code == 0 || ran.code == 143, "{ran:?}"),
        // It belongs to the host's root: nothing in the Space but its first process has it.
        Kind::Container => assert!(ran.stderr.contains("denied"), "{ran:?}"),
    }
    let log = space.dir().join("console.log");
    wait_until("it is cut", || {
        std::fs::metadata(&log).unwrap().len() < 17 * 1024 * 1024
    });
    assert_eq!(space.sh("echo alive"), "alive");
}

mod container_only {
    #[test]
    fn files_in_memory_are_bounded() {
        super::files_in_memory_are_bounded();
    }

    #[test]
    fn processes_are_counted() {
        super::processes_are_counted();
    }
}

/// Every tmpfs of the Space: full is an error, not the end of guestd.
fn files_in_memory_are_bounded() {
    let space = TestSpace::with(Kind::Container, "shm", "tiny", &["--memory-mb", "512"]);
    let places = space.sh("awk '$3 == \"tmpfs\" && $4 ~ /^rw/ {print $2}' /proc/mounts");
    assert!(places.lines().count() >= 2, "{places}");
    for place in places.lines() {
        let line =
            format!("dd if=/dev/zero of={place}/big bs=1M count=2000 2>&1; rm -f {place}/big");
        let ran = space.exec(&["sh", "-c", &line]);
        let text = ran.text();
        let is_refused = ["No space left", "denied", "Read-only"]
            .iter()
            .any(|refusal| text.contains(refusal));
        assert!(ran.code == 0 && is_refused, "{place}: {ran:?}");
    }
    assert_eq!(space.sh("echo alive"), "alive");
}

fn processes_are_counted() {
    let space = TestSpace::with(Kind::Container, "pids", "linux", &["--memory-mb", "4096"]);
    // Threads count as processes do and need less memory.
    let line = "import threading, time
def wait(): time.sleep(20)
threading.stack_size(65536)
count = 0
try:
    while count < 40000:
        threading.Thread(target=wait, daemon=True).start()
        count += 1
except Exception as error:
    print(count, error)
    import os, sys
    sys.stdout.flush(); os._exit(0)
print('all', count)
import os, sys
sys.stdout.flush(); os._exit(0)";
    let told = python(&space, line, &[]).expect(0).text();
    assert!(!told.starts_with("all"), "{told}");
    let count: u32 = told.split_whitespace().next().unwrap().parse().unwrap();
    assert!((1000..17_000).contains(&count), "{told}");
    wait_until("it answers", || space.exec(&["true"]).code == 0);
}
