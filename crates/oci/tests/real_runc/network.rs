//! A network namespace that was made before the Space.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use airlock_oci::ContainerConfig;

use crate::container::Container;

/// A network namespace with a link of its own, and its sysfs mounted; both gone with the test.
struct Prepared {
    name: String,
    sysfs: PathBuf,
}

impl Prepared {
    fn new(sysfs: PathBuf) -> Self {
        fs::create_dir(&sysfs).unwrap();
        let name = format!("airlock-oci-{}", std::process::id());
        run(&["ip", "netns", "add", &name]);
        let prepared = Self { name, sysfs };
        run(&["ip", "-n", &prepared.name, "link", "set", "lo", "up"]);
        // A sysfs shows the network namespace of whoever mounts it.
        let netns = format!("--net={}", prepared.netns().display());
        let sysfs = prepared.sysfs.to_str().unwrap();
        let options = "ro,nosuid,nodev,noexec";
        run(&[
            "nsenter", &netns, "mount", "-t", "sysfs", "-o", options, "sysfs", sysfs,
        ]);
        for setting in ["ping_group_range", "ip_unprivileged_port_start"] {
            // In ids of the host, which only whoever made the namespace may write.
            let value = match setting {
                "ping_group_range" => format!(
                    "{} {}",
                    crate::container::FIRST_ID,
                    crate::container::FIRST_ID + crate::container::IDS - 1
                ),
                _ => "0".to_owned(),
            };
            let script = format!("echo {value} > /proc/sys/net/ipv4/{setting}");
            run(&["nsenter", &netns, "sh", "-c", &script]);
        }
        prepared
    }

    fn netns(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.sysfs).status();
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .status();
    }
}

fn run(command: &[&str]) {
    let output = Command::new(command[0])
        .args(&command[1..])
        .output()
        .unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

#[test]
fn a_joined_network_is_seen_and_cannot_be_changed() {
    let Some(container) = Container::new("joined") else {
        return;
    };
    if Command::new("ip").arg("-V").output().is_err() {
        eprintln!("skipped: ip is not installed (package iproute2)");
        return;
    }
    let prepared = Prepared::new(container.beside("sysfs"));
    let script = "echo links $(ls /sys/class/net)
        echo flags $(cat /sys/class/net/lo/flags)
        echo ping $(cat /proc/sys/net/ipv4/ping_group_range)
        (echo 1 > /proc/sys/net/ipv4/ip_forward) 2>/dev/null && echo SUCCEEDED: a setting
        (echo 9000 > /sys/class/net/lo/mtu) 2>/dev/null && echo SUCCEEDED: a link by sysfs
        ip link set lo down 2>/dev/null && echo SUCCEEDED: a link
        ls /sys/firmware /sys/fs/cgroup";
    let config = ContainerConfig {
        netns: Some(prepared.netns()),
        sysfs: Some(prepared.sysfs.clone()),
        ..container.config(script)
    };
    let said = container.says(&config);
    assert!(said.contains("links lo\n"), "{said}");
    // Up and loopback: the namespace that was prepared, not a new one.
    assert!(said.contains("flags 0x9\n"), "{said}");
    assert!(said.contains("ping 0 65535\n"), "{said}");
    assert!(!said.contains("SUCCEEDED"), "{said}");
}
