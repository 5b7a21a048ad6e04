//! The filter of system calls on the real kernel.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use airlock_oci::ContainerConfig;
use airlock_oci::seccomp::blocked_syscalls;

use crate::container::Container;

const EPERM: i32 = 1;
const ENOSYS: i32 = 38;
const EAFNOSUPPORT: i32 = 97;
const SIGSYS: i32 = 31;

/// Builds the program that tries the calls, as one static file, into the container's root.
fn build_probe(container: &Container) {
    let mut table = String::new();
    for (call, _) in blocked_syscalls() {
        writeln!(
            table,
            "#ifdef SYS_{call}\n{{\"{call}\", SYS_{call}}},\n#endif"
        )
        .unwrap();
    }
    fs::write(container.beside("blocked.h"), table).unwrap();
    fs::write(container.beside("probe.c"), include_str!("probe.c")).unwrap();
    let output = Command::new("cc")
        .args(["-static", "-O1", "-Wall", "-Werror", "-o"])
        .arg(container.root().join("bin/probe"))
        .arg(container.beside("probe.c"))
        .output()
        .expect("the test of the filter needs a C compiler (package gcc, libc6-dev)");
    assert!(output.status.success(), "{output:?}");
}

fn parse(said: &str) -> BTreeMap<String, i32> {
    said.lines()
        .map(|line| {
            let (name, errno) = line.split_once(' ').unwrap();
            (name.to_owned(), errno.parse().unwrap())
        })
        .collect()
}

#[test]
fn the_filter_answers_each_call_as_the_tables_say() {
    let Some(container) = Container::new("syscalls") else {
        return;
    };
    build_probe(&container);
    let config = ContainerConfig {
        args: vec!["/bin/probe".to_owned()],
        ..container.config("")
    };
    let answers = parse(&container.says(&config));
    let tried = answers
        .iter()
        .filter(|(name, _)| name.starts_with("blocked/"));
    assert!(tried.clone().count() > 40, "{answers:?}");
    for (name, errno) in tried {
        assert_eq!(*errno, EPERM, "{name}");
    }
    for (name, errno) in &answers {
        let (kind, what) = name.split_once('/').unwrap();
        let expected = match (kind, what) {
            ("allowed", _)
            | ("clone", "plain")
            | ("socket", "UNIX" | "INET" | "NETLINK")
            | ("personality", "query" | "linux" | "linux32" | "no-randomize") => 0,
            ("clone" | "socket" | "blocked" | "raw", _) => EPERM,
            ("clone3" | "future" | "personality", _) => ENOSYS,
            ("x32", _) => -SIGSYS,
            ("i386", _) => continue,
            _ => panic!("{name} is not expected"),
        };
        // A host may be without IPv6.
        if what != "INET6" {
            assert_eq!(*errno, expected, "{name}");
        }
    }
    assert_ne!(answers["socket/INET6"], EPERM);
    // Where the kernel runs 32-bit programs, they meet the same filter.
    if answers.get("i386/getpid") == Some(&0) {
        assert_eq!(answers["i386/socket-UNIX"], 0);
        assert_eq!(answers["i386/socketcall-ALG"], EAFNOSUPPORT);
        for call in [
            "unshare",
            "mount",
            "umount",
            "clone-NEWUSER",
            "socket-VSOCK",
        ] {
            assert_eq!(answers[&format!("i386/{call}")], EPERM, "{call}");
        }
    }
}

/// The same container without the filter: else the test above might only see the kernel's own
/// refusals, which are `EPERM` too for whoever lacks a capability.
#[test]
fn without_the_filter_the_kernel_would_let_much_of_it_by() {
    let Some(container) = Container::new("unfiltered") else {
        return;
    };
    build_probe(&container);
    let config = ContainerConfig {
        args: vec!["/bin/probe".to_owned()],
        ..container.config("")
    };
    let answers = parse(&container.says_unfiltered(&config));
    for call in [
        "unshare",
        "keyctl",
        "io_uring_setup",
        "pidfd_getfd",
        "kcmp",
        "setns",
    ] {
        assert_ne!(answers[&format!("blocked/{call}")], EPERM, "{call}");
    }
    for name in ["clone/NEWUSER", "personality/bsd"] {
        assert_eq!(answers[name], 0, "{name}");
    }
    assert_ne!(answers["socket/VSOCK-in-disguise"], EPERM);
}
