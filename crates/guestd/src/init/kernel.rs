//! Kernel file systems, modules, clock and randomness.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use super::BootError;
use crate::console::{Causes, say};
use crate::convert::now;
use crate::sys::machine::credit_entropy;

/// A file system that every Linux program expects.
struct KernelFs {
    kind: &'static str,
    target: &'static str,
    flags: MountFlags,
    options: &'static std::ffi::CStr,
    /// The options make it faster, not safer.
    is_optional: bool,
}

/// Where commands get groups of their own.
pub(super) const COMMAND_CGROUP: &str = "/sys/fs/cgroup/airlock";

const NO_PROGRAMS: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC);

const KERNEL_FS: &[KernelFs] = &[
    KernelFs {
        kind: "proc",
        target: "/proc",
        flags: NO_PROGRAMS,
        options: c"",
        is_optional: false,
    },
    KernelFs {
        kind: "sysfs",
        target: "/sys",
        flags: NO_PROGRAMS,
        options: c"",
        is_optional: false,
    },
    KernelFs {
        kind: "devtmpfs",
        target: "/dev",
        flags: MountFlags::NOSUID,
        options: c"mode=0755",
        is_optional: false,
    },
    KernelFs {
        kind: "devpts",
        target: "/dev/pts",
        flags: MountFlags::NOSUID.union(MountFlags::NOEXEC),
        options: c"gid=5,mode=0620,ptmxmode=0666",
        is_optional: false,
    },
    KernelFs {
        kind: "tmpfs",
        target: "/dev/shm",
        flags: MountFlags::NOSUID.union(MountFlags::NODEV),
        options: c"mode=1777",
        is_optional: false,
    },
    KernelFs {
        kind: "tmpfs",
        target: "/run",
        flags: MountFlags::NOSUID.union(MountFlags::NODEV),
        options: c"mode=0755",
        is_optional: false,
    },
    KernelFs {
        kind: "cgroup2",
        target: "/sys/fs/cgroup",
        flags: NO_PROGRAMS,
        // Each command enters a group of its own, and without this every entrance waits for a
        // grace period of the kernel. Linux 6.0 and later.
        options: c"favordynmods",
        is_optional: true,
    },
];

/// Mounts what every Linux program expects.
pub(super) fn mount_all() -> Result<(), BootError> {
    for entry in KERNEL_FS {
        let target = Path::new(entry.target);
        // Fails where the kernel offers the folder itself, which is just as good.
        let _ = rustix::fs::mkdir(target, Mode::from_raw_mode(0o755));
        let mounted = match mount(entry.kind, target, entry.kind, entry.flags, entry.options) {
            // A kernel from before an option does without it.
            Err(Errno::INVAL) if entry.is_optional => {
                mount(entry.kind, target, entry.kind, entry.flags, c"")
            }
            mounted => mounted,
        };
        match mounted {
            // The kernel mounts devtmpfs by itself on some configurations.
            Ok(()) | Err(Errno::BUSY) => {}
            Err(source) => {
                return Err(BootError::Mount {
                    kind: entry.kind,
                    target: target.to_owned(),
                    source,
                });
            }
        }
    }
    for (link, target) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
    ] {
        let _ = rustix::fs::symlink(target, link);
    }
    let _ = rustix::fs::mkdir(COMMAND_CGROUP, Mode::from_raw_mode(0o755));
    Ok(())
}

/// Loads the modules that `list` names, one path a line.
///
/// A module that does not load is reported and passed over: what it was needed for says so.
pub(super) fn load_modules(list: &Path) {
    let names = fs::read_to_string(list).unwrap_or_default();
    for path in names.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let loaded = File::open(path).and_then(|module| {
            rustix::system::finit_module(&module, c"", 0).or_else(|errno| match errno {
                Errno::EXIST => Ok(()),
                errno => Err(errno.into()),
            })
        });
        if let Err(error) = loaded {
            say(format_args!("module {path}: {error}"));
        }
    }
}

/// Sets the clock when it is clearly wrong.
///
/// The configuration was written some time before, so a clock ahead of it is expected, as long
/// as it is not further ahead than a boot takes.
pub(super) fn set_clock(host_unix_ns: u64) {
    const BEHIND: Duration = Duration::from_secs(1);
    const AHEAD: Duration = Duration::from_secs(120);
    let host = Duration::from_nanos(host_unix_ns);
    let now = now();
    if (now + BEHIND < host || now > host + AHEAD)
        && let Err(error) = crate::system::set_clock(host)
    {
        say(format_args!("the clock was not set: {error}"));
    }
}

/// Seeds the random number generator, so that nothing waits for it.
pub(super) fn seed_random(entropy: &str) {
    let Ok(seed) = hex::decode(entropy) else {
        say("the entropy in the boot configuration is not hexadecimal");
        return;
    };
    let seeded = File::options()
        .write(true)
        .open("/dev/urandom")
        .and_then(|pool| credit_entropy(pool.as_fd(), &seed));
    if let Err(error) = seeded {
        say(format_args!("no entropy was added: {}", Causes(&error)));
    }
}
