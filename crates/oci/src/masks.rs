//! Kernel files that a Space may not see, or not change.
//!
//! Both lists hold at least what Docker, containerd and Podman hide by default (their
//! `maskedPaths` and `readonlyPaths`; the thermal files since GHSA-6fw5-f8r9-fgfm, the power
//! files since CVE-2020-8694). A runtime passes over a path that this kernel does not have.

/// Hidden: a file reads as empty, a folder has nothing in it.
const MASKED: &[&str] = &[
    // Switches of the host's hardware: radios, lids, lights, sound.
    "/proc/acpi",
    "/proc/asound",
    "/proc/scsi",
    // What the host is doing at this instant, fine enough for side channels.
    "/proc/interrupts",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    // The kernel's memory and its keyrings, which have no namespace.
    "/proc/kcore",
    "/proc/keys",
    // Firmware tables and variables.
    "/sys/firmware",
    // The host's disks and its security policy.
    "/sys/dev/block",
    "/sys/fs/selinux",
];

/// Readable, because programs read them at start, but never to be changed.
const READ_ONLY: &[&str] = &[
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The paths to hide on a host with this many CPUs, whose thermal counters have a folder each.
pub fn masked_paths(host_cpus: u32) -> Vec<String> {
    let thermal =
        (0..host_cpus).map(|cpu| format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle"));
    MASKED
        .iter()
        .map(ToString::to_string)
        .chain(thermal)
        .collect()
}

/// The paths to make read-only.
pub fn read_only_paths() -> Vec<String> {
    READ_ONLY.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_has_its_thermal_folder_hidden() {
        let paths = masked_paths(3);
        for cpu in 0..3 {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle");
            assert!(paths.contains(&path), "{path}");
        }
        assert_eq!(paths.len(), MASKED.len() + 3);
    }

    #[test]
    fn no_path_is_both_hidden_and_read_only() {
        let masked = masked_paths(0);
        assert!(read_only_paths().iter().all(|path| !masked.contains(path)));
    }
}
