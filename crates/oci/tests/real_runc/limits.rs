//! Limits, read back from the host's cgroups and met by the Space.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use airlock_oci::{CgroupMount, ContainerConfig, Limits};

use crate::container::{Container, FIRST_ID, text};

const CGROUPS: &str = "/sys/fs/cgroup";
const MEMORY_BYTES: u64 = 64 << 20;

/// A file of a controller: its folder where each has one (v1), and its names on v1 and v2.
struct File {
    controller: &'static str,
    v1: &'static str,
    v2: &'static str,
}

const MEMORY: File = File {
    controller: "memory",
    v1: "memory.limit_in_bytes",
    v2: "memory.max",
};
const CPU: File = File {
    controller: "cpu",
    v1: "cpu.cfs_quota_us",
    v2: "cpu.max",
};
const PIDS: File = File {
    controller: "pids",
    v1: "pids.max",
    v2: "pids.max",
};

/// A cgroup of this test, and the folder runc leaves above it.
struct Group {
    above: String,
    is_v2: bool,
}

impl Group {
    fn new(name: &str) -> Option<Self> {
        let is_v2 = Path::new(CGROUPS).join("cgroup.controllers").exists();
        if !is_v2 && !Path::new(CGROUPS).join("memory").exists() {
            eprintln!("skipped: this host has no cgroups");
            return None;
        }
        let above = format!("airlock-oci-{name}-{}", std::process::id());
        Some(Self { above, is_v2 })
    }

    fn path(&self) -> String {
        format!("/{}/space", self.above)
    }

    fn folder(&self, file: &File) -> PathBuf {
        let top = Path::new(CGROUPS);
        let top = if self.is_v2 {
            top.to_owned()
        } else {
            top.join(file.controller)
        };
        top.join(&self.above).join("space")
    }

    fn read(&self, file: &File) -> String {
        let name = if self.is_v2 { file.v2 } else { file.v1 };
        let text = fs::read_to_string(self.folder(file).join(name)).unwrap();
        text.trim().to_owned()
    }

    fn limits(&self) -> Limits {
        let swap = Path::new(CGROUPS).join("memory/memory.memsw.limit_in_bytes");
        Limits {
            cpus: 1,
            memory_bytes: MEMORY_BYTES,
            pids: 16,
            can_limit_swap: !self.is_v2 && swap.exists(),
            can_limit_devices: true,
        }
    }

    fn config(&self, container: &Container, script: &str) -> ContainerConfig {
        ContainerConfig {
            cgroup: Some((self.path(), self.limits())),
            cgroup_mount: CgroupMount::ReadOnly,
            ..container.config(script)
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(Path::new(CGROUPS).join(&self.above));
        for controller in fs::read_dir(CGROUPS).unwrap() {
            let _ = fs::remove_dir(controller.unwrap().path().join(&self.above));
        }
    }
}

#[test]
fn limits_are_set_on_the_host_and_go_with_the_container() {
    let (Some(container), Some(group)) = (Container::new("limits"), Group::new("limits")) else {
        return;
    };
    container.start(&group.config(&container, "sleep 300"));
    assert_eq!(group.read(&MEMORY), MEMORY_BYTES.to_string());
    let cpu = if group.is_v2 {
        "100000 100000"
    } else {
        "100000"
    };
    assert_eq!(group.read(&CPU), cpu);
    assert_eq!(group.read(&PIDS), "16");
    container.delete();
    for file in [&MEMORY, &CPU, &PIDS] {
        assert!(!group.folder(file).exists(), "{}", file.controller);
    }
}

#[test]
fn a_space_reads_its_own_limits_and_cannot_raise_them() {
    let (Some(container), Some(group)) = (Container::new("own"), Group::new("own")) else {
        return;
    };
    let file = if group.is_v2 {
        "/sys/fs/cgroup/memory.max"
    } else {
        "/sys/fs/cgroup/memory/memory.limit_in_bytes"
    };
    let script = format!(
        "cat {file}; (echo 1 > {file}) 2>/dev/null && echo SUCCEEDED: a limit
         mkdir $(dirname {file})/new 2>/dev/null && echo SUCCEEDED: a group
         cut -d: -f3 /proc/self/cgroup | sort -u"
    );
    let said = container.says(&group.config(&container, &script));
    // The cgroup namespace: its own group is the top, whatever it is called on the host.
    assert_eq!(said, format!("{MEMORY_BYTES}\n/\n"));
}

#[test]
fn a_space_that_takes_too_much_is_held_back() {
    let (Some(container), Some(group)) = (Container::new("greedy"), Group::new("greedy")) else {
        return;
    };
    let script = "dd if=/dev/zero of=/dev/null bs=128M count=1 2>/dev/null; echo memory $?
        i=0; while [ $i -lt 32 ]; do sleep 60 & i=$((i+1)); done; echo SUCCEEDED: processes";
    let output = container.run(&group.config(&container, script));
    let said = text(&output);
    // 128 + SIGKILL.
    assert!(said.contains("memory 137"), "{said}");
    assert!(said.contains("can't fork"), "{said}");
    assert!(!said.contains("SUCCEEDED"), "{said}");
}

/// An image could bring a device node, and the Space's root is made by the host's.
#[test]
fn a_node_of_a_host_device_in_the_root_opens_nothing() {
    let (Some(container), Some(group)) = (Container::new("device"), Group::new("device")) else {
        return;
    };
    // One that does open here, so that the refusal is the limit's.
    let Some(device) = ["/dev/fuse", "/dev/kvm", "/dev/loop-control"]
        .into_iter()
        .find(|path| fs::File::open(path).is_ok())
    else {
        eprintln!("skipped: no device of this host opens");
        return;
    };
    let number = fs::metadata(device).unwrap().rdev();
    let (major, minor) = ((number >> 8) & 0xFFF, number & 0xFF);
    let node = container.root().join("device");
    let made = Command::new("mknod")
        .arg(&node)
        .args(["c", &major.to_string(), &minor.to_string()])
        .status();
    assert!(made.unwrap().success());
    fs::set_permissions(&node, fs::Permissions::from_mode(0o666)).unwrap();
    chown(&node, Some(FIRST_ID), Some(FIRST_ID)).unwrap();
    let script = "(: < /device) && echo SUCCEEDED; echo tried";
    let said = text(&container.run(&group.config(&container, script)));
    assert!(said.contains("Operation not permitted"), "{said}");
    assert!(
        said.contains("tried") && !said.contains("SUCCEEDED"),
        "{said}"
    );
}
