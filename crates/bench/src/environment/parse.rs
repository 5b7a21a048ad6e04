//! The kernel's text files, as pure functions of their content.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::LoadAverage;

/// The value of the first line `key : value` of `/proc/cpuinfo`.
fn cpuinfo_field<'a>(cpuinfo: &'a str, key: &str) -> Option<&'a str> {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| found.trim() == key)
        .map(|(_, value)| value.trim())
}

/// The processor's name; aarch64 kernels give only numbers.
pub(super) fn cpu_model(cpuinfo: &str) -> Option<String> {
    cpuinfo_field(cpuinfo, "model name")
        .map(str::to_owned)
        .or_else(|| {
            let implementer = cpuinfo_field(cpuinfo, "CPU implementer")?;
            let part = cpuinfo_field(cpuinfo, "CPU part")?;
            Some(format!("implementer {implementer} part {part}"))
        })
}

/// Those of the wanted features that the processor has, in the order in which they are wanted.
pub(super) fn cpu_flags(cpuinfo: &str, wanted: &[&str]) -> Vec<String> {
    let flags = cpuinfo_field(cpuinfo, "flags")
        .or_else(|| cpuinfo_field(cpuinfo, "Features"))
        .unwrap_or_default();
    wanted
        .iter()
        .filter(|want| flags.split_ascii_whitespace().any(|flag| flag == **want))
        .map(|&flag| flag.to_owned())
        .collect()
}

/// `MemTotal` of `/proc/meminfo` in MiB.
pub(super) fn memory_mib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024)
}

/// The three averages of `/proc/loadavg`.
pub(super) fn load_average(text: &str) -> Option<LoadAverage> {
    let mut words = text.split_ascii_whitespace().map(str::parse);
    let mut next = || words.next()?.ok();
    Some([next()?, next()?, next()?])
}

/// `PRETTY_NAME` of `/etc/os-release`.
pub(super) fn os_name(os_release: &str) -> Option<String> {
    os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map(|name| name.trim_matches('"').to_owned())
}

/// The file system type of the mount that holds `path`, from `/proc/self/mountinfo`
/// (`proc_pid_mountinfo(5)`).
pub(super) fn file_system_of(mountinfo: &str, path: &Path) -> Option<String> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, tail) = line.split_once(" - ")?;
            let mount_point = unescape(mount.split(' ').nth(4)?);
            let fs_type = tail.split(' ').next()?;
            path.starts_with(&mount_point)
                .then_some((mount_point, fs_type))
        })
        // Later mounts cover earlier ones at the same place, and `max_by_key` keeps the last.
        .max_by_key(|(mount_point, _)| mount_point.as_os_str().len())
        .map(|(_, fs_type)| fs_type.to_owned())
}

/// Undoes the kernel's `\040` for a blank.
fn unescape(text: &str) -> PathBuf {
    let bytes = std::ffi::OsStr::new(text).as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        let octal = digits.and_then(|d| u8::from_str_radix(d, 8).ok());
        match octal {
            Some(byte) if first == b'\\' => {
                out.push(byte);
                rest = &tail[3..];
            }
            Some(_) | None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_an_x86_processor() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC 7B13\nflags\t\t: fpu sha_ni avx2\n";
        assert_eq!(cpu_model(text).as_deref(), Some("AMD EPYC 7B13"));
        // Whole words only: `sha` is not `sha_ni`.
        assert_eq!(
            cpu_flags(text, &["avx2", "sha", "sha_ni"]),
            ["avx2", "sha_ni"]
        );
    }

    #[test]
    fn reads_an_arm_processor() {
        let text = "Features\t: fp asimd sha2\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(
            cpu_model(text).as_deref(),
            Some("implementer 0x41 part 0xd0c")
        );
        assert_eq!(cpu_flags(text, &["sha2"]), ["sha2"]);
    }

    #[test]
    fn reads_numbers() {
        assert_eq!(
            memory_mib("MemTotal:       24683520 kB\nMemFree: 1 kB\n"),
            Some(24_105)
        );
        assert_eq!(memory_mib(""), None);
        assert_eq!(
            load_average("1.97 1.14 0.58 2/171 999\n"),
            Some([1.97, 1.14, 0.58])
        );
        assert_eq!(load_average("1.97"), None);
    }

    #[test]
    fn reads_the_distribution() {
        let text = "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(
            os_name(text).as_deref(),
            Some("Debian GNU/Linux 12 (bookworm)")
        );
    }

    #[test]
    fn finds_the_mount_that_holds_a_path() {
        let text = "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
                    23 22 0:5 / /tmp rw - tmpfs tmpfs rw\n\
                    24 22 0:6 / /tmp/a\\040b rw - xfs /dev/sdb rw\n\
                    25 22 0:7 / /tmp rw - btrfs /dev/sdc rw\n";
        let find = |path: &str| file_system_of(text, Path::new(path));
        assert_eq!(find("/home/x").as_deref(), Some("ext4"));
        assert_eq!(find("/tmpfoo").as_deref(), Some("ext4"));
        assert_eq!(find("/tmp/x").as_deref(), Some("btrfs"), "the later mount");
        assert_eq!(find("/tmp/a b/c").as_deref(), Some("xfs"));
        assert_eq!(file_system_of("", Path::new("/")), None);
    }
}
