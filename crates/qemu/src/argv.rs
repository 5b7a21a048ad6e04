//! From a machine's description to QEMU's command line: values in, words out.
//!
//! Everything here was tried on QEMU 7.2; the comments name what is not obvious.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;

use crate::accel::Backend;

#[cfg(test)]
mod tests;

/// Disk serial by which the guest finds the lane.
pub const LANE_SERIAL: &str = "airlock-lane";
/// Disk serial by which the guest finds its root disk.
pub const ROOT_SERIAL: &str = "airlock-root";
/// Id of the control network, as `info usernet` names it.
pub const CONTROL_NETDEV: &str = "control";

/// QEMU's own seccomp filter, as tight as it goes.
pub(crate) const SANDBOX: [&str; 2] = [
    "-sandbox",
    "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
];

/// The control network. Link-local on purpose: such a network is never routed and no LAN hands
/// out a /24 of it by plan, so it cannot hide an address that the guest reaches over its data
/// network (169.254.169.254 stays visible too).
pub const CONTROL_NET: &str = "169.254.193.0/24";
/// The guest's address on the control network.
pub const CONTROL_GUEST_ADDRESS: &str = "169.254.193.15";
/// The guest's address on the control network, with prefix length.
pub const CONTROL_GUEST_CIDR: &str = "169.254.193.15/24";
/// Packet size on the control network.
pub const CONTROL_MTU: u32 = 1500;
/// The TCP port in the guest that the control network forwards to.
pub const GUEST_PORT: u16 = 3211;

/// The instruction set of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// 64-bit x86.
    #[serde(rename = "x86_64")]
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Arch {
    /// The host's own, or `None` where Airlock has no support for it.
    pub fn host() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _unsupported => None,
        }
    }

    /// The name that QEMU's program carries.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// The guest kernel's name of the machine's first serial port.
    pub const fn console_device(self) -> &'static str {
        match self {
            Self::X86_64 => "ttyS0",
            Self::Aarch64 => "ttyAMA0",
        }
    }
}

/// Where a kernel or initramfs comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file that QEMU opens by name.
    Path(PathBuf),
    /// An inherited descriptor. QEMU opens it again through the descriptor folder, so the file's
    /// mode must allow QEMU's user to read it; the folders above do not matter.
    Fd(RawFd),
}

/// The lane: raw memory that the guest sees as a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// The memory, open for reading and writing.
    pub fd: RawFd,
}

/// A root disk: a read-only raw image below a writable qcow2 overlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootDisk {
    /// The raw image, open read-only.
    pub base: RawFd,
    /// The overlay, open for reading and writing.
    pub overlay: RawFd,
}

/// The control network: it carries one forwarded port and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlNet {
    /// Hardware address.
    pub mac: String,
}

/// The data network: frames over a stream socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataNet {
    /// Hardware address.
    pub mac: String,
    /// QEMU's end of the connected stream socket.
    pub fd: RawFd,
}

/// One machine. Descriptors are numbers in the child, see [`airlock_process::InheritedFds`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmConfig {
    /// Instruction set.
    pub arch: Arch,
    /// What executes the instructions.
    pub accel: Backend,
    /// Number of virtual CPUs.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// The kernel.
    pub kernel: Source,
    /// The initramfs.
    pub initrd: Source,
    /// The kernel's command line, to which [`build`] adds what the accelerator wants. Never put a
    /// secret here.
    pub cmdline: String,
    /// The lane.
    pub lane: Option<Lane>,
    /// The root disk.
    pub root: Option<RootDisk>,
    /// The control network.
    pub control: Option<ControlNet>,
    /// The data network.
    pub data: Option<DataNet>,
    /// A connected stream socket on which QEMU speaks QMP.
    pub qmp: RawFd,
    /// Takes the serial console's output: a file opened for writing (append), or a pipe.
    pub console: RawFd,
    /// Whether QEMU locks itself down with seccomp. Linux alone has that.
    pub sandbox: bool,
}

/// The kernel command line that boots fastest and says least. [`build`] adds what only emulation
/// wants.
///
/// Each word was measured under TCG with Debian's 6.1 cloud kernel; together with what `build`
/// adds they save about a third of the processor time from the first instruction to a guest
/// that answers.
pub fn fast_cmdline(arch: Arch) -> String {
    // A panic ends QEMU (`-no-reboot`), and errors still show.
    const QUIET: &str = "quiet panic=-1";
    // The kernel's tests of its own ciphers, and a tracer that nobody attaches.
    const UNTESTED: &str =
        "cryptomgr.notests initcall_blacklist=crypto_kdf108_init,init_blk_tracer";
    // Waiting for other CPUs' quiet moments costs more than asking them.
    const EXPEDITED: &str = "rcupdate.rcu_expedited=1 audit=0";
    let console = arch.console_device();
    let ports = match arch {
        Arch::X86_64 => " 8250.nr_uarts=1",
        Arch::Aarch64 => "",
    };
    format!("console={console} {QUIET} {UNTESTED} {EXPEDITED}{ports}")
}

/// What emulation adds to any command line: it speculates nothing that a mitigation could
/// mitigate, moving the kernel in memory means patching it instruction by instruction, and the
/// emulated clock needs no checking against others.
fn accel_cmdline(arch: Arch, accel: Backend) -> &'static str {
    match (arch, accel) {
        (Arch::X86_64, Backend::Tcg) => " nokaslr mitigations=off tsc=reliable no_timer_check",
        (Arch::Aarch64, Backend::Tcg) => " nokaslr mitigations=off",
        (Arch::X86_64 | Arch::Aarch64, Backend::Kvm | Backend::Hvf) => "",
    }
}

/// The complete command line after the program's name.
pub fn build(config: &VmConfig) -> Vec<OsString> {
    let mut args = Args {
        words: Vec::new(),
        fdsets: 0,
    };
    machine(config, &mut args);
    boot(config, &mut args);
    if let Some(lane) = config.lane {
        lane_disk(lane, &mut args);
    }
    if let Some(root) = config.root {
        root_disk(root, &mut args);
    }
    args.pair("-device", "virtio-rng-pci");
    consoles(config, &mut args);
    networks(config, &mut args);
    if config.sandbox {
        args.words.extend(SANDBOX.map(Into::into));
    }
    args.words
}

struct Args {
    words: Vec<OsString>,
    fdsets: u32,
}

impl Args {
    fn pair(&mut self, option: &str, value: impl Into<OsString>) {
        self.words.push(option.into());
        self.words.push(value.into());
    }

    fn flag(&mut self, option: &str) {
        self.words.push(option.into());
    }

    /// Hands `fd` over and returns the name by which QEMU opens it without a system `open`.
    fn fdset(&mut self, fd: RawFd) -> String {
        self.fdsets += 1;
        let set = self.fdsets;
        self.pair("-add-fd", format!("fd={fd},set={set}"));
        format!("/dev/fdset/{set}")
    }
}

fn machine(config: &VmConfig, args: &mut Args) {
    let memory_mb = config.memory_mb;
    let machine = match (config.arch, config.accel) {
        // Without the devices of a real PC that nobody needs here. Never `graphics=off`: it loads a
        // firmware extension for serial terminals that delays the boot by seconds.
        (Arch::X86_64, Backend::Kvm | Backend::Tcg | Backend::Hvf) => {
            "q35,smm=off,vmport=off,i8042=off,sata=off,usb=off,hpet=off"
        }
        (Arch::Aarch64, Backend::Kvm | Backend::Hvf) => "virt,gic-version=max",
        (Arch::Aarch64, Backend::Tcg) => "virt,gic-version=3",
    };
    let accel = match config.accel {
        Backend::Kvm => "kvm",
        Backend::Hvf => "hvf",
        Backend::Tcg => "tcg,thread=multi,tb-size=256",
    };
    let cpu = match (config.arch, config.accel) {
        (Arch::X86_64 | Arch::Aarch64, Backend::Kvm | Backend::Hvf) => "host",
        // A fifth level of page tables makes every emulated page walk longer.
        (Arch::X86_64, Backend::Tcg) => "max,la57=off",
        (Arch::Aarch64, Backend::Tcg) => "max",
    };
    args.flag("-nodefaults");
    args.flag("-no-user-config");
    args.pair("-display", "none");
    args.flag("-no-reboot");
    // macOS has no memfd; there the default anonymous memory does.
    match config.accel {
        Backend::Kvm | Backend::Tcg => {
            args.pair("-machine", format!("{machine},memory-backend=mem"));
            args.pair(
                "-object",
                format!("memory-backend-memfd,id=mem,size={memory_mb}M,share=on"),
            );
        }
        Backend::Hvf => args.pair("-machine", machine),
    }
    args.pair("-accel", accel);
    args.pair("-cpu", cpu);
    args.pair("-smp", config.cpus.to_string());
    args.pair("-m", format!("{memory_mb}M"));
}

fn boot(config: &VmConfig, args: &mut Args) {
    // Linux and macOS name the descriptor folder differently.
    let folder = match config.accel {
        Backend::Kvm | Backend::Tcg => "/proc/self/fd",
        Backend::Hvf => "/dev/fd",
    };
    let name = |source: &Source| match source {
        Source::Path(path) => path.clone().into_os_string(),
        Source::Fd(fd) => format!("{folder}/{fd}").into(),
    };
    args.pair("-kernel", name(&config.kernel));
    args.pair("-initrd", name(&config.initrd));
    let extra = accel_cmdline(config.arch, config.accel);
    args.pair("-append", format!("{}{extra}", config.cmdline));
}

/// Locking is off because the memory has one owner and a memfd needs none; nothing is flushed
/// because there is no disk below; no discard because the keeper alone punches holes.
fn lane_disk(lane: Lane, args: &mut Args) {
    let set = args.fdset(lane.fd);
    args.pair("-object", "iothread,id=lane-io");
    args.pair(
        "-blockdev",
        format!(
            "driver=file,node-name=lane-file,filename={set},locking=off,aio=threads,\
             cache.direct=off,cache.no-flush=on"
        ),
    );
    args.pair(
        "-blockdev",
        "driver=raw,node-name=lane,file=lane-file,cache.direct=off,cache.no-flush=on",
    );
    args.pair(
        "-device",
        format!(
            "virtio-blk-pci,drive=lane,serial={LANE_SERIAL},iothread=lane-io,\
             discard=off,write-zeroes=off"
        ),
    );
}

/// The overlay's header names no backing file; the nodes are joined here by name. Nothing is
/// flushed: an overlay that a host crash may damage is disposable by definition.
fn root_disk(root: RootDisk, args: &mut Args) {
    let base = args.fdset(root.base);
    let overlay = args.fdset(root.overlay);
    args.pair("-object", "iothread,id=root-io");
    args.pair(
        "-blockdev",
        format!("driver=file,node-name=base-file,filename={base},read-only=on,locking=off"),
    );
    args.pair(
        "-blockdev",
        "driver=raw,node-name=base,file=base-file,read-only=on",
    );
    args.pair(
        "-blockdev",
        format!(
            "driver=file,node-name=overlay-file,filename={overlay},locking=off,aio=threads,\
             discard=unmap,cache.direct=off,cache.no-flush=on"
        ),
    );
    args.pair(
        "-blockdev",
        "driver=qcow2,node-name=root,file=overlay-file,backing=base,\
         discard=unmap,cache.direct=off,cache.no-flush=on",
    );
    args.pair(
        "-device",
        format!("virtio-blk-pci,drive=root,serial={ROOT_SERIAL},iothread=root-io"),
    );
}

fn consoles(config: &VmConfig, args: &mut Args) {
    let console = args.fdset(config.console);
    args.pair(
        "-chardev",
        format!("file,id=console,path={console},append=on"),
    );
    args.pair("-serial", "chardev:console");
    args.pair("-chardev", format!("socket,id=qmp,fd={}", config.qmp));
    args.pair("-mon", "chardev=qmp,mode=control");
}

fn networks(config: &VmConfig, args: &mut Args) {
    if let Some(control) = &config.control {
        // Port 0: the kernel picks a free one, so nothing can take it in between.
        args.pair(
            "-netdev",
            format!(
                "user,id={CONTROL_NETDEV},restrict=on,ipv6=off,net={CONTROL_NET},\
                 dhcpstart={CONTROL_GUEST_ADDRESS},\
                 hostfwd=tcp:127.0.0.1:0-{CONTROL_GUEST_ADDRESS}:{GUEST_PORT}"
            ),
        );
        nic(CONTROL_NETDEV, &control.mac, args);
    }
    if let Some(data) = &config.data {
        args.pair(
            "-netdev",
            format!(
                "stream,id=data,addr.type=fd,addr.str={},server=off",
                data.fd
            ),
        );
        nic("data", &data.mac, args);
    }
}

/// No option ROM: nothing boots from the network, and loading it would cost time.
fn nic(netdev: &str, mac: &str, args: &mut Args) {
    args.pair(
        "-device",
        format!("virtio-net-pci,netdev={netdev},mac={mac},romfile="),
    );
}
