//! What a Space is, and what it cannot do, seen from inside.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use airlock_oci::{ContainerConfig, Mount};

use crate::container::{Container, FIRST_ID, IDS, text};

/// The eleven capabilities by number, capabilities(7).
const CAPABILITIES: u64 = 1 << 0 // CHOWN
    | 1 << 1 // DAC_OVERRIDE
    | 1 << 3 // FOWNER
    | 1 << 4 // FSETID
    | 1 << 5 // KILL
    | 1 << 6 // SETGID
    | 1 << 7 // SETUID
    | 1 << 8 // SETPCAP
    | 1 << 10 // NET_BIND_SERVICE
    | 1 << 18 // SYS_CHROOT
    | 1 << 31; // SETFCAP

#[test]
fn the_kernel_confirms_the_walls() {
    let Some(container) = Container::new("walls") else {
        return;
    };
    let said = container.says(&container.config(
        "cat /proc/self/status; cat /proc/self/uid_map; cat /proc/self/gid_map; hostname; \
         echo pid $$; echo oom $(cat /proc/self/oom_score_adj); echo files $(ulimit -n); \
         echo core $(ulimit -c); echo ping $(cat /proc/sys/net/ipv4/ping_group_range); \
         echo port $(cat /proc/sys/net/ipv4/ip_unprivileged_port_start); \
         echo links $(ls /sys/class/net); echo groups $(ls /sys/fs/cgroup)",
    ));
    let field = |name: &str| {
        let line = said.lines().find(|line| line.starts_with(name));
        let value = line.unwrap_or_else(|| panic!("no {name} in {said}"));
        value[name.len()..].trim().to_owned()
    };
    let held = format!("{CAPABILITIES:016x}");
    let none = format!("{:016x}", 0);
    for (name, expected) in [
        ("CapEff:", held.as_str()),
        ("CapPrm:", &held),
        ("CapBnd:", &held),
        ("CapInh:", &none),
        ("CapAmb:", &none),
        ("NoNewPrivs:", "1"),
        // 2: a filter.
        ("Seccomp:", "2"),
        ("pid", "1"),
        ("files", "1024"),
        ("core", "0"),
        ("ping", "0 65535"),
        ("port", "0"),
        ("links", "lo"),
        ("groups", ""),
    ] {
        assert_eq!(field(name), expected, "{name}");
    }
    assert!(said.contains("\nwalled\n"), "{said}");
    let map = format!("0 {FIRST_ID} {IDS}");
    let maps = said
        .lines()
        .filter(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == map);
    assert_eq!(maps.count(), 2, "{said}");
}

#[test]
fn what_reaches_for_the_host_fails() {
    let Some(container) = Container::new("host") else {
        return;
    };
    let attempts = [
        ("a new user namespace", "unshare -U true"),
        ("a new mount namespace", "unshare -m true"),
        ("a mount", "mount -t tmpfs none /tmp"),
        ("a remount", "mount -o remount,rw /sys"),
        ("uncovering a hidden folder", "umount /sys/firmware"),
        ("uncovering the kernel's settings", "umount /proc/sys"),
        ("a character device", "mknod /tmp/memory c 1 1"),
        ("a block device", "mknod /tmp/disk b 8 0"),
        ("a kernel setting", "echo 1 > /proc/sys/kernel/panic"),
        ("the magic keys", "echo h > /proc/sysrq-trigger"),
        ("the kernel's memory", "head -c 1 /proc/kcore | grep ."),
        ("the keyrings", "grep . /proc/keys"),
        ("the interrupts", "grep . /proc/interrupts"),
        ("the firmware", "ls /sys/firmware | grep ."),
        ("the kernel's log", "dmesg"),
        ("the clock", "date -s 2000-01-01; date +%Y | grep 2000"),
        ("the name", "hostname other"),
        ("another root", "pivot_root / /tmp"),
        ("modules", "insmod /bin/busybox"),
        ("a restart", "reboot -f"),
        ("swapping", "swapon /bin/busybox"),
        (
            "a program in shared memory",
            "cp /bin/busybox /dev/shm/ && /dev/shm/busybox true",
        ),
    ];
    let script: String = attempts
        .iter()
        .map(|(what, how)| {
            let program = how.split(' ').next().unwrap();
            format!(
                "command -v {program} >/dev/null || echo {program} is missing
                ({how}) >/dev/null 2>&1 && echo \"SUCCEEDED: {what}\"\n"
            )
        })
        .chain(["echo all tried".to_owned()])
        .collect();
    assert_eq!(container.says(&container.config(&script)), "all tried\n");
}

#[test]
fn what_root_of_a_machine_does_daily_works() {
    let Some(container) = Container::new("daily") else {
        return;
    };
    let script = "set -e
        touch /tmp/file; chown 1000:1000 /tmp/file; test $(stat -c %u /tmp/file) = 1000
        chmod 4755 /tmp/file; mkfifo /tmp/fifo; mkdir -p /run/lock /new/folder
        chroot / true; test $(cat /tmp/file | wc -c) = 0
        echo text > /dev/shm/file; test -c /dev/null; test -L /dev/ptmx; test -r /proc/meminfo
        head -c 16 /dev/urandom | wc -c; echo done";
    assert_eq!(container.says(&container.config(script)), "16\ndone\n");
}

#[test]
fn a_file_of_host_root_stays_closed_even_where_it_is_mounted() {
    let Some(container) = Container::new("mounts") else {
        return;
    };
    let (secret, shared) = (container.beside("secret"), container.beside("shared"));
    for (path, mode) in [(&secret, 0o600), (&shared, 0o666)] {
        fs::write(path, "of the host\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mount = |source: &std::path::Path, target: &str, writable| Mount {
        source: source.to_owned(),
        target: target.into(),
        writable,
    };
    let config = ContainerConfig {
        mounts: vec![
            mount(&secret, "/etc/secret", true),
            mount(&shared, "/etc/read", false),
            mount(&shared, "/run/airlock/write", true),
        ],
        ..container.config(
            "cat /etc/secret && echo SUCCEEDED; echo no > /etc/read && echo SUCCEEDED
             cat /etc/read; echo yes > /run/airlock/write",
        )
    };
    let output = container.run(&config);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("SUCCEEDED"), "{said}");
    assert!(said.contains("Permission denied"), "{said}");
    assert!(said.contains("Read-only file system"), "{said}");
    assert!(said.contains("of the host"), "{said}");
    assert_eq!(fs::read_to_string(&shared).unwrap(), "yes\n");
}
