//! Folders and archives become images, and Spaces of both kinds.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on shall end, and say why"
)]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use airlock_e2e::{TestSpace, airlock, home, name, run};

/// A root file system with BusyBox and one file that tells it apart.
fn make_root(root: &Path, greeting: &str) {
    for folder in ["bin", "etc", "root"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    std::fs::copy("/bin/busybox", root.join("bin/busybox")).expect("package busybox-static");
    for applet in ["sh", "cat", "id", "ls", "stat"] {
        symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    std::fs::write(root.join("etc/greeting"), greeting).unwrap();
}

/// Makes a Space of what `source` names, and removes the image afterwards.
fn greets(source: &Path, kind: &str, greeting: &str) {
    let space_name = name("img");
    let source = source.to_str().unwrap();
    let args = ["spaces", "create", source, "--name", &space_name];
    let _ran = airlock([&args[..], &["--kind", kind, "--network", "none"]].concat()).expect(0);
    let space = TestSpace::adopt(space_name, home());
    assert_eq!(
        space.sh("cat /etc/greeting; echo; id -u"),
        format!("{greeting}\n0")
    );
    let image = space.info()["image"].as_str().unwrap().to_owned();
    let _ran = airlock(["image", "rm", &image]).expect(1).says(&space.name);
    drop(space);
    let _ran = airlock(["image", "rm", &image]).expect(0);
}

#[test]
fn a_folder_becomes_a_container() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    make_root(&root, "from a folder");
    greets(&root, "container", "from a folder");
}

#[test]
fn an_archive_becomes_a_container_and_a_vm() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    make_root(&root, "from an archive");
    let archive = folder.path().join("rootfs.tar.gz");
    let packed = run(Command::new("tar")
        .arg("-C")
        .arg(&root)
        .arg("-czf")
        .arg(&archive)
        .arg("."));
    let _ran = packed.expect(0);
    for kind in ["container", "vm"] {
        greets(&archive, kind, "from an archive");
    }
}

#[test]
fn what_is_no_image_is_refused_and_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let not_an_archive = folder.path().join("x.tar");
    std::fs::write(&not_an_archive, "no archive").unwrap();
    let space = name("no");
    let create = |source: &str| airlock(["spaces", "create", source, "--name", &space]);
    let _ran = create(not_an_archive.to_str().unwrap())
        .expect(1)
        .says("x.tar");
    let _ran = create("./missing").expect(3).says("missing");
    // A registry that nobody runs.
    let _ran = create("oci:127.0.0.1:1/nobody/nothing:1").says("127.0.0.1:1");
    assert!(!home().join("spaces").join(&space).exists());
}

/// Inside of another container the home often lies on an overlay, on which none can be laid.
#[test]
fn a_home_that_takes_no_overlay_gets_copies() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can mount the file system of this test");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    make_root(&folder.path().join("rootfs"), "copied");
    let script = format!(
        "set -e; cd {}; mkdir base; mount -t tmpfs none base; \
         mkdir base/lower base/upper base/work base/home; \
         mount -t overlay -o lowerdir=base/lower,upperdir=base/upper,workdir=base/work none base/home; \
         export AIRLOCK_HOME=$PWD/base/home; \
         $0 spaces create ./rootfs --name copy --kind container --network none; \
         $0 exec copy -- sh -c 'cat /etc/greeting; rm /etc/greeting; echo'; \
         $0 spaces stop copy; $0 spaces start copy; \
         $0 exec copy -- ls /etc; $0 spaces info copy; $0 spaces delete copy",
        folder.path().display()
    );
    let ran = run(Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .arg(airlock_e2e::program()))
    .expect(0);
    let text = ran.text();
    assert!(text.contains("copied\n"), "{text}");
    assert!(
        !text.contains("greeting"),
        "a removed file came back: {text}"
    );
    assert!(text.contains("a copy of the image's"), "{text}");
}
