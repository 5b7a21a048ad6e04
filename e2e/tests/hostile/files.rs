//! Lies about files, and files that stay on the host.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use airlock_e2e::{Kind, TestSpace, airlock, on_both_kinds, run};

on_both_kinds! {
    every_day: ;
    slow_on_vm: sources_lead_to_nothing_of_the_host, names_are_shown_without_their_power,
        a_broken_user_list_hangs_nothing, broken_identity_files_hang_nothing;
}

/// K11.7, K11.9, K11.10
fn sources_lead_to_nothing_of_the_host(kind: Kind) {
    let space = TestSpace::tiny(kind, "sources");
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "of the host").unwrap();
    let target = folder.path().join("target");
    space.sh(&format!(
        "mkdir /root/s; cd /root/s; ln -s {0} link; ln -s ../../../../../..{0} up; \
         ln -s /proc/1/root{0} first; ln -s loop loop; mkfifo fifo; ln -s /dev/zero zero; \
         ln -s /proc/self/exe program; ln -s /etc/passwd own; echo x > plain; ln plain hard",
        secret.display()
    ));
    for name in ["link", "up", "first", "loop", "fifo", "zero"] {
        let source = space.at(&format!("/root/s/{name}"));
        let words = [
            "--signal=KILL",
            "30",
            airlock_e2e::program().to_str().unwrap(),
            "cp",
        ]
        .map(str::to_owned);
        let mut command = std::process::Command::new("timeout");
        command
            .args(words)
            .args([&source, target.to_str().unwrap()]);
        let ran = run(command.env("AIRLOCK_HOME", airlock_e2e::home()));
        assert!(ran.code != 0 && ran.code != 137, "{name}: {ran:?}");
        assert!(!target.exists(), "{name}");
    }
    let _ran = airlock(["cp", &space.at("/root/s/own"), target.to_str().unwrap()]).expect(0);
    let passwd = std::fs::read_to_string(&target).unwrap();
    assert_eq!(
        passwd.trim_end(),
        space.sh("cat /etc/passwd"),
        "the Space's own file"
    );
    let _ran = airlock(["cp", &space.at("/root/s/hard"), target.to_str().unwrap()]).expect(0);
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "x\n");
    assert_eq!(
        std::fs::metadata(&target).unwrap().uid(),
        rustix::process::geteuid().as_raw()
    );
    // Upload through a link that leads out: it is the Space's file that is written.
    let _ran = airlock(["cp", target.to_str().unwrap(), &space.at("/root/s/link")]);
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "of the host");
}

fn names_are_shown_without_their_power(kind: Kind) {
    let space = TestSpace::tiny(kind, "names");
    let folder = tempfile::tempdir().unwrap();
    let evil: &[u8] = b"/root/\x1b]0;owned\x07\x1b[2J\n\xff";
    let mut source = space.at("").into_bytes();
    source.extend_from_slice(evil);
    let target = folder.path().join("target");
    let copy = || {
        airlock(
            [b"cp", &source[..], target.as_os_str().as_bytes()].map(std::ffi::OsStr::from_bytes),
        )
    };
    let ran = copy().expect(3);
    assert!(
        !ran.stderr.contains('\x1b') && !ran.stderr.contains('\x07'),
        "{ran:?}"
    );
    let shell =
        "printf content > \"$(printf '/root/\\033]0;owned\\007\\033[2J\\n\\377')\"; mkdir /root/d";
    space.sh(shell);
    let ran = copy().expect(0);
    assert_eq!(std::fs::read(&target).unwrap(), b"content");
    assert!(
        !ran.stderr.contains('\x1b') && !ran.text().contains('\x1b'),
        "{ran:?}"
    );
}

mod container_only {
    #[test]
    fn what_a_space_leaves_on_the_host_has_no_power_there() {
        super::what_a_space_leaves_on_the_host_has_no_power_there();
    }

    #[test]
    fn what_a_space_wrote_over_its_own_system_does_not_trick_the_next_start() {
        super::what_a_space_wrote_over_its_own_system_does_not_trick_the_next_start();
    }
}

fn what_a_space_leaves_on_the_host_has_no_power_there() {
    let space = TestSpace::with(Kind::Container, "upper", "linux", &[]);
    let script = "import os, shutil, socket, struct
shutil.copy('/usr/bin/id', '/root/setuid'); os.chmod('/root/setuid', 0o6755)
shutil.copy('/usr/bin/id', '/root/capable')
# CAP_SETUID and more, permitted and effective: version 2 of the attribute, made version 3 by the kernel
os.setxattr('/root/capable', 'security.capability', struct.pack('<IIIII', 0x02000001, 0xffffffff, 0, 0x1ff, 0))
os.mkdir('/root/open', 0o777); os.chmod('/root/open', 0o1777)
os.chown('/root/open', 1000, 1000)
os.mkfifo('/root/fifo'); socket.socket(socket.AF_UNIX).bind('/root/socket')
os.symlink('/etc/shadow', '/root/link'); os.link('/root/setuid', '/root/hard')";
    let _ran = crate::python(&space, script, &[]).expect(0);
    let upper = space.dir().join("upper/root");
    let base = 1 << 30;
    let mut seen = 0;
    for entry in std::fs::read_dir(&upper).unwrap().flatten() {
        let meta = std::fs::symlink_metadata(entry.path()).unwrap();
        assert!(
            meta.uid() >= base && meta.gid() >= base,
            "{}: {meta:?}",
            entry.path().display()
        );
        let kind = meta.file_type();
        assert!(
            !kind.is_block_device() && !kind.is_char_device(),
            "{}",
            entry.path().display()
        );
        seen += 1;
    }
    assert!(seen >= 7, "{seen} files");
    let meta = std::fs::metadata(upper.join("setuid")).unwrap();
    assert_eq!((meta.uid(), meta.mode() & 0o7777), (base, 0o6755));
    let capability = attribute(&upper.join("capable"), "security.capability");
    // linux/capability.h: `struct vfs_ns_cap_data`, at its end the namespace's root.
    assert_eq!(capability.len(), 24, "{capability:?}");
    let root = u32::from_le_bytes(capability[20..24].try_into().unwrap());
    assert_eq!(root, base, "capabilities count only in the Space");
    // Nobody but the person gets there at all.
    assert_eq!(std::fs::metadata(space.dir()).unwrap().mode() & 0o077, 0);
}

fn attribute(path: &Path, name: &str) -> Vec<u8> {
    let mut value = vec![0; 64];
    let name = CString::new(name).unwrap();
    let len = rustix::fs::lgetxattr(path, &*name, &mut value[..]).unwrap();
    value.truncate(len);
    value
}

/// The runtime works in the Space's own tree before the Space's walls stand.
fn what_a_space_wrote_over_its_own_system_does_not_trick_the_next_start() {
    let mut space = TestSpace::with(Kind::Container, "trick", "linux", &[]);
    let folder = tempfile::tempdir().unwrap();
    let bait = folder.path().join("bait");
    std::fs::create_dir(&bait).unwrap();
    let upper = space.dir().join("upper");
    let file = folder.path().join("file");
    std::fs::write(&file, "of the host").unwrap();
    // Mount points cannot be replaced from inside while they are mounted: done here as the Space
    // could in the moments when they are not, each link owned by its root.
    for (place, to) in [
        ("etc/hostname", file.as_path()),
        ("etc/hosts", &file),
        ("etc/resolv.conf", &file),
        ("etc/machine-id", &file),
        ("dev", &bait),
        ("sys", &bait),
        ("run", &bait),
    ] {
        let _ran = airlock(["spaces", "stop", &space.name]);
        let at = upper.join(place);
        let _gone = std::fs::remove_file(&at).or_else(|_| std::fs::remove_dir_all(&at));
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, &at).unwrap();
        rustix::fs::chownat(
            rustix::fs::CWD,
            &at,
            Some(rustix::fs::Uid::from_raw(1 << 30)),
            Some(rustix::fs::Gid::from_raw(1 << 30)),
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        )
        .unwrap();
        let ran = airlock(["spaces", "start", &space.name]);
        println!("{place}: {} {}", ran.code, ran.stderr.trim());
        space.look();
        if ran.code == 0 {
            let marker = format!("ls {} 2>/dev/null | wc -l", bait.display());
            let _ran = space.exec(&["sh", "-c", &marker]).expect(0);
        }
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            "of the host",
            "{place}"
        );
        assert_eq!(
            std::fs::read_dir(&bait).unwrap().count(),
            0,
            "{place} led to the host"
        );
        std::fs::remove_file(&at).unwrap();
    }
}

/// Runs `airlock`, which must come back by itself.
fn bounded(limit_s: u32, args: &[&str]) -> airlock_e2e::Ran {
    let mut command = std::process::Command::new("timeout");
    command
        .args(["--signal=KILL", &limit_s.to_string()])
        .arg(airlock_e2e::program())
        .args(args)
        .env("AIRLOCK_HOME", airlock_e2e::home());
    let ran = run(&mut command);
    assert!(ran.code != 137, "{args:?} hangs: {ran:?}");
    ran
}

/// The files that guestd and the runtime read and write for every Space are the Space's own.
fn a_broken_user_list_hangs_nothing(kind: Kind) {
    for how in [
        "mkfifo /etc/passwd /etc/group",
        "ln -s /dev/zero /etc/passwd; ln -s /dev/zero /etc/group",
        "mkdir /etc/passwd /etc/group",
        "ln -s /etc/passwd /etc/passwd",
    ] {
        let space = TestSpace::tiny(kind, "users");
        let line = format!("rm -f /etc/passwd /etc/group; {how}; echo done");
        let ran = bounded(20, &["exec", &space.name, "--", "sh", "-c", &line]);
        assert_eq!(ran.text(), "done\n", "{how}: {ran:?}");
        let ran = bounded(20, &["exec", &space.name, "--", "echo", "on"]);
        assert_eq!(ran.text(), "on\n", "{how}: {ran:?}");
        let _ran = bounded(20, &["cp", "/etc/os-release", &space.at("/root/x")]).expect(0);
        let _ran = bounded(30, &["spaces", "stop", &space.name]).expect(0);
        let ran = bounded(60, &["spaces", "start", &space.name]);
        let told = ran.stderr.contains("/etc/passwd");
        assert!(ran.code == 0 || told, "{how}: {ran:?}");
    }
}

fn broken_identity_files_hang_nothing(kind: Kind) {
    let space = TestSpace::tiny(kind, "identity");
    for how in ["mkfifo", "mkdir", "ln -s /dev/zero", "ln -s /proc/1/fd/3"] {
        let line = format!(
            "cd /etc; for f in hostname hosts resolv.conf machine-id; do rm -rf $f; {how} $f; done"
        );
        let _ran = bounded(20, &["exec", &space.name, "--", "sh", "-c", &line]).expect(0);
        let _ran = bounded(30, &["spaces", "stop", &space.name]).expect(0);
        let _ran = bounded(60, &["spaces", "start", &space.name]).expect(0);
        assert_eq!(space.sh("hostname"), space.name, "{how}");
    }
}
