//! The `linux` image: a whole Debian, with a disk that has the size that was asked for.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on shall end, and say why"
)]

use airlock_e2e::{TestSpace, airlock, same_bytes, write_random};

#[test]
fn the_linux_image_is_what_it_says() {
    let space = TestSpace::with("linux", "linux", &["--disk-gb", "6"]);
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
    let size_kib: u64 = space
        .sh("df -k / | tail -1 | awk '{print $2}'")
        .parse()
        .unwrap();
    assert!(
        (5_500_000..=6 * 1024 * 1024).contains(&size_kib),
        "{size_kib} KiB"
    );
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
    two_spaces_differ(&id);
}

fn two_spaces_differ(first_id: &str) {
    let other = TestSpace::with("linux", "linux", &[]);
    assert_ne!(other.sh("cat /etc/machine-id"), first_id);
}

/// `--fsync`: success means that the file survives the death of the machine.
#[test]
fn a_synced_file_survives_the_machines_death() {
    let space = TestSpace::with("sync", "linux", &[]);
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
    let pid = rustix::process::Pid::from_raw(i32::try_from(machine).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    airlock_e2e::wait_until("the crash is seen", || space.state() == "crashed");
    let _ran = airlock(["spaces", "start", &space.name]).expect(0);
    let _ran = airlock(["cp", &space.at("/root/f"), back.to_str().unwrap()]).expect(0);
    assert!(same_bytes(&there, &back));
}
