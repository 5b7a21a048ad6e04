//! Files in and out of a real Space: sizes, names, refusals and interruptions.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on shall end, and say why"
)]

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use airlock_e2e::{
    Kind, TestSpace, airlock, command, freeze_under_way, on_both_kinds, run, same_bytes, sha256,
    signal, start, wait_until, write_random,
};
use rustix::process::Signal;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

on_both_kinds! {
    every_day: copies_with_one_space;
    slow_on_vm: a_space_that_dies_in_the_middle_of_a_copy;
}

/// One Space for all that does not break it: the boot of a machine takes seconds.
fn copies_with_one_space(kind: Kind) {
    let space = TestSpace::with(kind, "copy", "tiny", &["--memory-mb", "1024"]);
    let folder = tempfile::tempdir().unwrap();
    every_boundary_both_ways(&space, folder.path());
    names_are_bytes(&space, folder.path());
    destinations(&space, folder.path());
    refusals_in(&space, folder.path());
    refusals_out(&space, folder.path());
    full_disks(kind, &space, folder.path());
    pipes(&space, folder.path());
    attributes(&space, folder.path());
    a_running_program_keeps_its_file(&space, folder.path());
    two_writers_leave_one_whole_file(&space, folder.path());
    many_transfers_at_once(&space, folder.path());
    cancelled_at_a_third(&space, folder.path());
    a_daemon_that_is_killed(&space, folder.path());
}

fn up(space: &TestSpace, from: &Path, to: &str) -> airlock_e2e::Ran {
    let target = space.at(to);
    airlock([
        OsStr::new("cp"),
        from.as_os_str(),
        OsStr::new(&target),
        OsStr::new("--json"),
    ])
}

fn down(space: &TestSpace, from: &str, to: &Path) -> airlock_e2e::Ran {
    let source = space.at(from);
    airlock([
        OsStr::new("cp"),
        OsStr::new(&source),
        to.as_os_str(),
        OsStr::new("--json"),
    ])
}

/// Sizes around every size that the protocol knows: inline limit, leaf, group of leaves, slot,
/// all slots of a transfer.
fn every_boundary_both_ways(space: &TestSpace, folder: &Path) {
    let inline = 64 * KIB;
    let leaf = 64 * KIB;
    let slot = 4 * MIB;
    let sizes = [
        (0, "inline"),
        (1, "inline"),
        (inline, "inline"),
        (inline + 1, "lane"),
        (2 * leaf - 1, "lane"),
        (2 * leaf, "lane"),
        (2 * leaf + 1, "lane"),
        (8 * leaf + 1, "lane"),
        (16 * leaf, "lane"),
        (slot - 1, "lane"),
        (slot, "lane"),
        (slot + 1, "lane"),
        (8 * slot + 4097, "lane"),
    ];
    let (there, back) = (folder.join("there"), folder.join("back"));
    for (size, route) in sizes {
        write_random(&there, size, size);
        let sent = up(space, &there, "/tmp/f").expect(0).json();
        assert_eq!(sent["route"], route, "{size} bytes: {sent}");
        assert_eq!(sent["bytes"], size);
        let inside = space.sh("sha256sum /tmp/f | cut -d' ' -f1");
        assert_eq!(inside, sha256(&there), "{size} bytes in the Space");
        let got = down(space, "/tmp/f", &back).expect(0).json();
        assert_eq!(got["route"], route, "{size} bytes: {got}");
        assert_eq!(got["root_sha256"], sent["root_sha256"], "{size} bytes");
        assert!(same_bytes(&there, &back), "{size} bytes came back changed");
    }
    let line = airlock([
        "cp",
        "--sha256",
        there.to_str().unwrap(),
        &space.at("/tmp/f"),
    ])
    .expect(0);
    assert!(line.text().starts_with(&sha256(&there)), "{line:?}");
}

/// K4.7, K4.10, K4.13
fn names_are_bytes(space: &TestSpace, folder: &Path) {
    let names: [&[u8]; 9] = [
        b"my file (1)",
        b"it's \"quoted\"",
        b"$(id)`id`;&|",
        b"new\nline\ttab",
        b"-rf",
        b"trailing ",
        b"...",
        b"\xe4\xff\xfe",
        "snow\u{2603}man:colon".as_bytes(),
    ];
    for name in names {
        let local = folder.join(OsStr::from_bytes(name));
        std::fs::write(&local, name).unwrap();
        let mut target = space.at("/tmp/n/").into_bytes();
        space.sh("mkdir -p /tmp/n");
        target.extend_from_slice(name);
        let words = [
            b"cp".as_slice(),
            b"--",
            local.as_os_str().as_bytes(),
            &target,
        ];
        let _ran = airlock(words.map(OsStr::from_bytes)).expect(0);
        assert_eq!(
            space
                .sh("ls /tmp/n | wc -l; rm -rf /tmp/n/*; rm -rf /tmp/n")
                .lines()
                .count(),
            1
        );
        let _ran = airlock(words.map(OsStr::from_bytes)).expect(3);
        space.sh("mkdir -p /tmp/n");
        let _ran = airlock(words.map(OsStr::from_bytes)).expect(0);
        let back = folder.join("back");
        let words = [
            b"cp".as_slice(),
            b"--",
            &target,
            back.as_os_str().as_bytes(),
        ];
        let _ran = airlock(words.map(OsStr::from_bytes)).expect(0);
        assert_eq!(std::fs::read(&back).unwrap(), name);
        space.sh("rm -rf /tmp/n");
    }
}

/// K4.2, K4.5, K7.1, K11.5
fn destinations(space: &TestSpace, folder: &Path) {
    let file = folder.join("f");
    std::fs::write(&file, "content").unwrap();
    space.sh("mkdir -p /tmp/d /tmp/real; ln -sfn /tmp/real /tmp/link");
    assert_eq!(
        up(space, &file, "/tmp/d").expect(0).json()["path"],
        "/tmp/d/f"
    );
    assert_eq!(
        up(space, &file, "/tmp/d/").expect(0).json()["path"],
        "/tmp/d/f"
    );
    let _ran = up(space, &file, "/tmp/missing/").expect(3);
    let _ran = up(space, &file, "/tmp/link/f").expect(0);
    assert_eq!(space.sh("cat /tmp/real/f"), "content");
    let sub = folder.join("sub");
    std::fs::create_dir(&sub).unwrap();
    let _ran = down(space, "/tmp/d/f", &sub).expect(0);
    assert_eq!(std::fs::read(sub.join("f")).unwrap(), b"content");
}

/// K1.6, and the rest of what cannot go in.
fn refusals_in(space: &TestSpace, folder: &Path) {
    let _ran = up(space, &folder.join("nosuch"), "/tmp/x")
        .expect(3)
        .says("nosuch");
    assert_eq!(space.sh("ls /tmp/x 2>/dev/null; true"), "");
    let folder_source = folder.join("sub");
    let ran = up(space, &folder_source, "/tmp/x");
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains("hint:"), "{ran:?}");
    let file = folder.join("f");
    let _ran = up(space, &file, "/tmp/no/such/folder/x")
        .expect(3)
        .says("/tmp/no/such/folder");
    assert_ne!(up(space, &file, "/proc/nonsense").code, 0);
    assert_ne!(up(space, &file, "/dev/null").code, 0);
    assert_eq!(space.sh("test -c /dev/null && echo device"), "device");
    // A file is never replaced by a folder or the reverse.
    space.sh("echo old > /tmp/plain");
    assert_ne!(up(space, &file, "/tmp/plain/x").code, 0);
    assert_eq!(space.sh("cat /tmp/plain"), "old");
    let _ran = airlock(["cp", "a:b", "c:d"]).expect(2);
    let _ran = airlock(["cp", "/etc/passwd", "/tmp/y"]).expect(2);
}

/// K1.5
fn refusals_out(space: &TestSpace, folder: &Path) {
    let target = folder.join("never");
    let _ran = down(space, "/no/such", &target).expect(3).says("/no/such");
    assert!(!target.exists());
    let ran = down(space, "/tmp", &target);
    assert!(ran.code != 0 && ran.stderr.contains("/tmp"), "{ran:?}");
    assert!(!target.exists());
    space.sh("mkfifo /tmp/fifo 2>/dev/null; true");
    let ran = down(space, "/tmp/fifo", &target);
    assert_ne!(ran.code, 0, "a FIFO is refused, and never waited for");
    assert!(!target.exists());
    let _ran = down(space, "/tmp/plain", &folder.join("no/folder/x")).expect(3);
    let nothing_but = std::fs::read_dir(folder).unwrap().flatten();
    let partial = nothing_but
        .filter(|e| e.file_name().as_bytes().starts_with(b".airlock-"))
        .count();
    assert_eq!(partial, 0, "partial files stay behind");
}

/// K1.11, K15.5: no room in the Space, and none on the host.
fn full_disks(kind: Kind, space: &TestSpace, folder: &Path) {
    // A container may not mount; its /dev holds 64 MiB, and everything that a test may write to.
    let (small, fits) = match kind {
        Kind::Vm => ("/tmp/small", 8 * MIB),
        Kind::Container => ("/dev/small", 64 * MIB),
    };
    space.sh(&format!("mkdir -p {small}"));
    match kind {
        Kind::Vm => drop(space.sh(&format!("mount -t tmpfs -o size=8m tmpfs {small}"))),
        Kind::Container => {}
    }
    space.sh(&format!("echo old > {small}/f"));
    let big = folder.join("big");
    write_random(&big, fits + 12 * MIB, 3);
    let ran = up(space, &big, &format!("{small}/f")).expect(1);
    assert!(ran.stderr.contains("space"), "{ran:?}");
    assert_eq!(
        space.sh(&format!("cat {small}/f; ls -A {small} | wc -l")),
        "old\n1"
    );
    let file = folder.join("f");
    let _ran = up(space, &file, &format!("{small}/g")).expect(0);
    match kind {
        Kind::Vm => drop(space.sh(&format!("umount {small}"))),
        Kind::Container => drop(space.sh(&format!("rm -r {small}"))),
    }

    if !rustix::process::geteuid().is_root() {
        println!("not root: the host's full disk is not tried");
        return;
    }
    let mount = folder.join("mount");
    std::fs::create_dir(&mount).unwrap();
    let mounted = run(std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"])
        .arg(&mount));
    assert_eq!(mounted.code, 0, "{mounted:?}");
    let _unmount = OnDrop(|| {
        let _ran = run(std::process::Command::new("umount").arg(&mount));
    });
    std::fs::write(mount.join("f"), "old").unwrap();
    let _ran = up(space, &big, "/tmp/big").expect(0);
    let _ran = down(space, "/tmp/big", &mount.join("f")).expect(7);
    assert_eq!(std::fs::read(mount.join("f")).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(&mount).unwrap().count(), 1);
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn pipes(space: &TestSpace, folder: &Path) {
    let file = folder.join("piped");
    write_random(&file, 5 * MIB + 7, 4);
    let stdin = std::fs::File::open(&file).unwrap();
    let _ran = run(command(["cp", "-", &space.at("/tmp/piped")]).stdin(stdin)).expect(0);
    let ran = airlock(["cp", &space.at("/tmp/piped"), "-"]).expect(0);
    assert!(
        ran.stdout == std::fs::read(&file).unwrap(),
        "{} bytes",
        ran.stdout.len()
    );
    // A slow writer is no end of file.
    let mut child = command(["cp", "-", &space.at("/tmp/slow")])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"first ").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    stdin.write_all(b"second").unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
    assert_eq!(space.sh("cat /tmp/slow"), "first second");
}

/// K3.11
fn attributes(space: &TestSpace, folder: &Path) {
    let file = folder.join("dated");
    std::fs::write(&file, "x").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let when = std::time::UNIX_EPOCH + std::time::Duration::new(981_173_106, 789_000_001);
    std::fs::File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_modified(when)
        .unwrap();
    let _ran = up(space, &file, "/tmp/dated").expect(0);
    assert_eq!(space.sh("stat -c '%a %Y' /tmp/dated"), "640 981173106");
    let back = folder.join("dated.back");
    let _ran = down(space, "/tmp/dated", &back).expect(0);
    let meta = std::fs::metadata(&back).unwrap();
    assert_eq!(meta.modified().unwrap(), when, "to the nanosecond");
    assert_eq!(meta.permissions().mode() & 0o777, 0o640);
}

/// K10.5
fn a_running_program_keeps_its_file(space: &TestSpace, folder: &Path) {
    space.sh("cp /bin/busybox /tmp/sleep; /tmp/sleep 300 >/dev/null 2>&1 & sleep 0; true");
    let script = folder.join("new");
    std::fs::write(&script, "#!/bin/sh\necho new\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut runner = start(&mut command([
        "exec",
        &space.name,
        "--",
        "/tmp/sleep",
        "300",
    ]));
    wait_until("it runs", || {
        space.sh("ps | grep -c '[/]tmp/sleep 300'; true") != "0"
    });
    let _ran = up(space, &script, "/tmp/sleep").expect(0);
    assert_eq!(space.sh("/tmp/sleep"), "new");
    assert!(
        runner.try_wait().unwrap().is_none(),
        "the running program ended"
    );
    signal(&runner, Signal::INT);
    runner.wait().unwrap();
}

fn two_writers_leave_one_whole_file(space: &TestSpace, folder: &Path) {
    let (one, two) = (folder.join("one"), folder.join("two"));
    write_random(&one, 6 * MIB, 5);
    write_random(&two, 6 * MIB + 1, 6);
    let target = space.at("/tmp/both");
    let copy = |from: &Path| {
        command([OsStr::new("cp"), from.as_os_str(), OsStr::new(&target)])
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut copies = [copy(&one), copy(&two)];
    for copy in &mut copies {
        assert!(copy.wait().unwrap().success());
    }
    let inside = space.sh("sha256sum /tmp/both | cut -d' ' -f1");
    assert!(
        inside == sha256(&one) || inside == sha256(&two),
        "a mixture was published"
    );
    assert_eq!(space.sh("ls -A /tmp | grep -c '^.airlock-'; true"), "0");
}

fn many_transfers_at_once(space: &TestSpace, folder: &Path) {
    let children: Vec<_> = (0..16u64)
        .map(|i| {
            let file = folder.join(format!("many{i}"));
            write_random(&file, MIB + i, 100 + i);
            let target = space.at(&format!("/tmp/many{i}"));
            let words = [OsStr::new("cp"), file.as_os_str(), OsStr::new(&target)];
            command(words).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let sums = space.sh(
        "cd /tmp && sha256sum many0 many1 many2 many3 many4 many5 many6 many7 many8 \
                         many9 many10 many11 many12 many13 many14 many15 | cut -d' ' -f1; rm many*",
    );
    for (i, sum) in sums.lines().enumerate() {
        assert_eq!(sum, sha256(&folder.join(format!("many{i}"))));
    }
    assert_eq!(sums.lines().count(), 16);
}

/// Ctrl-C at about a third, then exec and delete at once.
fn cancelled_at_a_third(space: &TestSpace, folder: &Path) {
    let file = folder.join("long");
    write_random(&file, 200 * MIB, 7);
    space.sh("echo old > /tmp/long");
    let target = space.at("/tmp/long");
    let child = start(&mut command([
        OsStr::new("cp"),
        file.as_os_str(),
        OsStr::new(&target),
    ]));
    freeze_under_way(&child, 60 * MIB);
    signal(&child, Signal::INT);
    signal(&child, Signal::CONT);
    let mut child = child;
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(space.sh("cat /tmp/long"), "old");
    wait_until("the partial file goes", || {
        space.sh("ls -A /tmp | grep -c '^.airlock-'; true") == "0"
    });
    std::fs::remove_file(&file).unwrap();
}

/// guestd's server is killed in the middle: no partial file under the final name, the old file
/// intact, and the Space is usable again by itself.
fn a_daemon_that_is_killed(space: &TestSpace, folder: &Path) {
    let file = folder.join("long");
    write_random(&file, 100 * MIB, 8);
    space.sh("echo old > /tmp/long");
    let target = space.at("/tmp/long");
    let mut child = start(&mut command([
        OsStr::new("cp"),
        file.as_os_str(),
        OsStr::new(&target),
    ]));
    freeze_under_way(&child, 20 * MIB);
    // The connection of this very command breaks as well.
    let _ran = space.exec(&[
        "sh",
        "-c",
        "kill -9 $(ps | grep '[g]uestd serve' | awk '{print $1}')",
    ]);
    signal(&child, Signal::CONT);
    let code = child.wait().unwrap().code();
    assert!(matches!(code, Some(1 | 5)), "exit code {code:?}");
    wait_until("it answers again", || space.exec(&["true"]).code == 0);
    assert_eq!(space.sh("cat /tmp/long"), "old");
    assert_eq!(space.sh("ls -A /tmp | grep -c '^.airlock-'; true"), "0");
    write_random(&file, 5 * MIB, 9);
    assert_eq!(
        up(space, &file, "/tmp/long").expect(0).json()["route"],
        "lane"
    );
    assert_eq!(
        space.sh("sha256sum /tmp/long | cut -d' ' -f1"),
        sha256(&file)
    );
}

fn a_space_that_dies_in_the_middle_of_a_copy(kind: Kind) {
    let space = TestSpace::tiny(kind, "dies");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("long");
    write_random(&file, 100 * MIB, 10);
    let target = space.at("/tmp/long");
    let mut child = start(&mut command([
        OsStr::new("cp"),
        file.as_os_str(),
        OsStr::new(&target),
    ]));
    freeze_under_way(&child, 20 * MIB);
    let _ran = airlock(["spaces", "stop", "--force", &space.name]).expect(0);
    signal(&child, Signal::CONT);
    let code = child.wait().unwrap().code();
    assert!(matches!(code, Some(1 | 5)), "exit code {code:?}");

    let _ran = airlock(["spaces", "start", &space.name]).expect(0);
    write_random(&file, 60 * MIB, 11);
    let _ran = up(&space, &file, "/tmp/long").expect(0);
    let back = folder.path().join("back");
    std::fs::write(&back, "old").unwrap();
    let source = space.at("/tmp/long");
    let mut child = start(&mut command([
        OsStr::new("cp"),
        OsStr::new(&source),
        back.as_os_str(),
    ]));
    freeze_under_way(&child, 20 * MIB);
    let _ran = airlock(["spaces", "delete", &space.name]).expect(0);
    signal(&child, Signal::CONT);
    let code = child.wait().unwrap().code();
    assert!(matches!(code, Some(1 | 5)), "exit code {code:?}");
    assert_eq!(
        std::fs::read(&back).unwrap(),
        b"old",
        "the old file is intact"
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        2,
        "a partial file stays"
    );
}

/// K1.6: known before any connection, and before any Space is looked for.
#[test]
fn a_missing_source_is_told_before_anything_else() {
    let _ran = airlock(["cp", "/no/such/file", "nosuchspace:/x"])
        .expect(3)
        .says("/no/such/file");
}
