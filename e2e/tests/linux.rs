//! The `linux` image: a whole Debian, with a disk that has the size that was asked for.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on shall end, and say why"
)]

use airlock_e2e::processes::kill9;
use airlock_e2e::{Kind, TestSpace, airlock, on_both_kinds, same_bytes, write_random};

on_both_kinds! {
    every_day: the_linux_image_is_what_it_says;
    slow_on_vm: a_synced_file_survives_the_spaces_death;
}

fn the_linux_image_is_what_it_says(kind: Kind) {
    let space = TestSpace::with(kind, "linux", "linux", &["--disk-gb", "6"]);
    for program in [
        "bash",
        "python3",
        "git",
        "curl",
        "tar",
        "sshd",
        "rsync",
        "sha256sum",
    ] {
        let _ran = space
            .exec(&[
                "sh",
                "-c",
                "PATH=$PATH:/usr/sbin command -v \"$0\"",
                program,
            ])
            .expect(0);
    }
    assert_eq!(space.sh("python3 -c 'print(6*7)'"), "42");
    the_disk_has_its_size_or_the_person_is_told(kind, &space);
    let id = space.sh("cat /etc/machine-id");
    assert!(
        id.len() == 32 && id.chars().all(|c| c.is_ascii_hexdigit()),
        "{id}"
    );

    // What is written stays over a stop, and so do the machine's identities.
    let folder = tempfile::tempdir().unwrap();
    let (there, back) = (folder.path().join("there"), folder.path().join("back"));
    write_random(&there, 9 * 1024 * 1024 + 5, 1);
    let _ran = airlock(["cp", there.to_str().unwrap(), &space.at("/root/kept")]).expect(0);
    let _ran = airlock(["spaces", "stop", &space.name]).expect(0);
    let _ran = airlock(["spaces", "start", &space.name]).expect(0);
    let _ran = airlock(["cp", &space.at("/root/kept"), back.to_str().unwrap()]).expect(0);
    assert!(same_bytes(&there, &back));
    assert_eq!(space.sh("cat /etc/machine-id"), id);

    let _ran = airlock(["image", "rm", "linux"])
        .expect(1)
        .says(&space.name);
    two_spaces_differ(kind, &id);
}

fn the_disk_has_its_size_or_the_person_is_told(kind: Kind, space: &TestSpace) {
    let size_kib: u64 = space
        .sh("df -k / | tail -1 | awk '{print $2}'")
        .parse()
        .unwrap();
    let asked_kib = 6 * 1024 * 1024;
    let as_asked = (5_500_000..=asked_kib).contains(&size_kib);
    let told = space.info()["protection"].to_string();
    match kind {
        Kind::Vm => assert!(as_asked, "{size_kib} KiB"),
        Kind::Container => assert!(
            as_asked || told.contains("--disk-gb is not enforced"),
            "{size_kib} KiB, and nobody is told: {told}"
        ),
    }
}

fn two_spaces_differ(kind: Kind, first_id: &str) {
    let other = TestSpace::with(kind, "linux", "linux", &[]);
    assert_ne!(other.sh("cat /etc/machine-id"), first_id);
}

/// `--fsync`: success means that the file survives the Space's sudden death.
fn a_synced_file_survives_the_spaces_death(kind: Kind) {
    let space = TestSpace::with(kind, "sync", "linux", &[]);
    let folder = tempfile::tempdir().unwrap();
    let (there, back) = (folder.path().join("there"), folder.path().join("back"));
    write_random(&there, 20 * 1024 * 1024 + 1, 2);
    let _ran = airlock([
        "cp",
        "--fsync",
        there.to_str().unwrap(),
        &space.at("/root/f"),
    ])
    .expect(0);
    let machine = space.keeper_state()["machine"]["pid"].as_u64().unwrap();
    kill9(machine);
    airlock_e2e::wait_until("the crash is seen", || space.state() == "crashed");
    let _ran = airlock(["spaces", "start", &space.name]).expect(0);
    let _ran = airlock(["cp", &space.at("/root/f"), back.to_str().unwrap()]).expect(0);
    assert!(same_bytes(&there, &back));
}
