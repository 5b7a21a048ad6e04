//! Files larger than the Space's memory, and what both ends need for them.
//!
//! CI moves 1 GiB; `cargo xtask torture` moves 10 GiB and files around 2^32 bytes.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on shall end, and say why"
)]

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Stdio};

use airlock_e2e::{Kind, TestSpace, command, on_both_kinds, same_bytes, write_random};

const GIB: u64 = 1024 * 1024 * 1024;
/// The most that either side may need beyond what it needs idle.
const EXTRA_KIB: u64 = 64 * 1024;

/// Waits for `child` and returns the most memory that it had, in KiB.
fn peak_kib(mut child: Child) -> u64 {
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        if let Ok(text) = std::fs::read_to_string(&status) {
            peak = peak.max(field_kib(&text, "VmHWM:"));
        }
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return peak;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn field_kib(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or_default()
}

/// The most memory that guestd had so far, in KiB.
fn guestd_peak_kib(space: &TestSpace) -> u64 {
    let line = "for d in /proc/[0-9]*; do tr '\\0' ' ' < $d/cmdline | grep -q '^airlock-guestd serve' \
                && cat $d/status; done; true";
    field_kib(&space.sh(line), "VmHWM:")
}

/// The system's temporary folder may be in memory.
fn folder_on_disk() -> tempfile::TempDir {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    std::fs::create_dir_all(&target).unwrap();
    tempfile::tempdir_in(target).unwrap()
}

fn there_and_back(kind: Kind, bytes: u64) {
    let space = TestSpace::with(
        kind,
        "large",
        "linux",
        &["--memory-mb", "512", "--disk-gb", "24"],
    );
    let folder = folder_on_disk();
    let (there, back) = (folder.path().join("there"), folder.path().join("back"));
    write_random(&there, bytes, bytes);
    let copy = |from: &OsStr, to: &OsStr| {
        let mut copy = command([OsStr::new("cp"), OsStr::new("--json"), from, to]);
        copy.stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let idle_kib = guestd_peak_kib(&space);
    let remote = space.at("/root/large");
    let up_kib = peak_kib(copy(there.as_os_str(), OsStr::new(&remote)));
    let down_kib = peak_kib(copy(OsStr::new(&remote), back.as_os_str()));
    assert!(same_bytes(&there, &back));
    let guestd_kib = guestd_peak_kib(&space);
    println!(
        "{bytes} bytes: cp {up_kib} and {down_kib} KiB, guestd {idle_kib} to {guestd_kib} KiB"
    );
    // The program itself, with its code and libraries, has some MiB before it moves a byte.
    let program_kib = 24 * 1024;
    assert!(
        up_kib < program_kib + EXTRA_KIB,
        "upload took {up_kib} KiB on the host"
    );
    assert!(
        down_kib < program_kib + EXTRA_KIB,
        "download took {down_kib} KiB on the host"
    );
    assert!(
        guestd_kib < idle_kib + EXTRA_KIB,
        "guestd grew from {idle_kib} to {guestd_kib} KiB"
    );
    assert!(
        idle_kib > 0 && idle_kib < 10 * 1024,
        "guestd has {idle_kib} KiB at rest"
    );
}

on_both_kinds! {
    every_day: ;
    slow_on_vm: a_file_larger_than_the_spaces_memory;
}

/// K5.1, K5.7, scaled to 1 GiB.
fn a_file_larger_than_the_spaces_memory(kind: Kind) {
    there_and_back(kind, GIB);
}

on_both_kinds! {
    #[ignore = "full size, minutes: cargo xtask torture"]
    ten_gib_through_half_a_gib_of_memory, sizes_around_powers_of_two;
}

/// K5.1, K5.7
fn ten_gib_through_half_a_gib_of_memory(kind: Kind) {
    there_and_back(kind, 10 * GIB);
}

/// K1.8: sizes that do not fit into 31, 32 and 33 bits.
fn sizes_around_powers_of_two(kind: Kind) {
    let space = TestSpace::with(kind, "pow", "linux", &["--disk-gb", "24"]);
    let folder = folder_on_disk();
    let (there, back) = (folder.path().join("there"), folder.path().join("back"));
    for bytes in [(2 * GIB) - 1, 2 * GIB, (4 * GIB) + 1, (8 * GIB) + 1] {
        let file = std::fs::File::create(&there).unwrap();
        file.set_len(bytes).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"end", bytes - 3).unwrap();
        let remote = space.at("/root/pow");
        let _ran = airlock_e2e::airlock(["cp", there.to_str().unwrap(), &remote]).expect(0);
        assert_eq!(
            space.sh("stat -c %s /root/pow; tail -c 3 /root/pow"),
            format!("{bytes}\nend")
        );
        let _ran = airlock_e2e::airlock(["cp", &remote, back.to_str().unwrap()]).expect(0);
        assert_eq!(std::fs::metadata(&back).unwrap().len(), bytes);
        let _ran = space.exec(&["rm", "/root/pow"]);
    }
}
