//! One container Space as a value, and the `config.json` made of it.

mod check;

use std::path::{Path, PathBuf};

use oci_spec::runtime as oci;
use serde::{Deserialize, Serialize};

pub use check::{ConfigError, IdKind};

use crate::masks;
use crate::seccomp::{Arch, seccomp_profile};

/// The version of the runtime specification the file speaks: the oldest that has all it uses, so
/// that runtimes of 2022 (`runc` 1.1, `crun` 1.8) take it.
const OCI_VERSION: &str = "1.0.2";

/// The hard limit of open files that services get on a common Linux (systemd's default).
pub const DEFAULT_OPEN_FILES: u64 = 524_288;

/// The soft limit. Programs with `select` break above it, and some old ones close every
/// descriptor up to it at start, which takes long when it is half a million.
const SOFT_OPEN_FILES: u64 = 1024;

/// One period of the CPU limit, in microseconds: the kernel's own default.
const CPU_PERIOD_US: u64 = 100_000;

/// The group that terminals belong to on every common distribution.
const TTY_GROUP: u32 = 5;

/// A run of user or group ids of the Space and those on the host they stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMapping {
    /// The first id as the Space sees it.
    pub inside: u32,
    /// The first id as the host, or the user namespace around the runtime, sees it.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// A file or folder of the host that appears in the Space; no device or setuid bit on it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it is on the host.
    pub source: PathBuf,
    /// Where it appears; the runtime makes the place if it is missing.
    pub target: PathBuf,
    /// Whether the Space may write to it.
    pub writable: bool,
}

/// What a Space may use of the host, all of its processes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Whole CPUs' worth of time.
    pub cpus: u32,
    /// Memory in bytes, page cache and tmpfs files included.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: i64,
    /// Whether the host counts swap (`memory.memsw.limit_in_bytes`, `memory.swap.max`). Where it
    /// does, the Space gets none; where it does not, a limit would keep the Space from starting.
    pub can_limit_swap: bool,
    /// Whether the host lets devices be limited. v1 always does. On v2 the rules are a program in
    /// the kernel, which takes root, and for `crun` also `CAP_SYS_RESOURCE` (it raises its limit
    /// of locked memory first). They are the second wall against a device node that came with
    /// an image; the first is that whoever mounts the Space's root does so with `nodev`.
    pub can_limit_devices: bool,
}

/// Whether the Space sees its own cgroup at `/sys/fs/cgroup`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupMount {
    /// An empty folder. For hosts where none can be mounted.
    Hidden,
    /// Read-only, so that programs find their limits; the cgroup namespace shows nothing above.
    /// v2 is one mount. On v1 each controller is one, all of them in a tmpfs that runc leaves
    /// writable: it is the Space's own and counts as its memory.
    ReadOnly,
}

/// Whose the id 0 is where a runtime works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zero {
    /// The host's root, whom no Space may be.
    HostRoot,
    /// An ordinary user of the host, in a user namespace of that user's.
    User,
}

/// Everything that decides what a container Space is and may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerConfig {
    /// The Space's host name.
    pub hostname: String,
    /// The first program and its arguments.
    pub args: Vec<String>,
    /// Its environment.
    pub env: Vec<(String, String)>,
    /// The Space's root folder; owned by the mapped ids, below folders they may pass through.
    pub rootfs: PathBuf,
    /// Whose id 0 is outside, where the runtime works.
    pub zero: Zero,
    /// User ids; 0 inside must be among them.
    pub uid_map: Vec<IdMapping>,
    /// Group ids; 0 inside must be among them.
    pub gid_map: Vec<IdMapping>,
    /// The network namespace to join; `None`: a new one with nothing but loopback.
    pub netns: Option<PathBuf>,
    /// A sysfs of that network namespace, mounted read-only by the caller, to appear at `/sys`.
    /// The Space may only mount one itself where it owns its network namespace.
    pub sysfs: Option<PathBuf>,
    /// Where the Space is held among the host's cgroups, and its limits; `None`: no limits.
    pub cgroup: Option<(String, Limits)>,
    /// What the Space sees of it.
    pub cgroup_mount: CgroupMount,
    /// More of the host's files.
    pub mounts: Vec<Mount>,
    /// How many CPUs the host has, each with files to hide.
    pub host_cpus: u32,
    /// The hard limit of open files: [`DEFAULT_OPEN_FILES`], or the caller's own where that is
    /// lower. To raise it takes `CAP_SYS_RESOURCE`, which root may lack too (in a container).
    pub open_files: u64,
}

/// The `config.json` for this Space on this machine.
pub fn build(config: &ContainerConfig) -> Result<oci::Spec, ConfigError> {
    check::check(config)?;
    let arch = Arch::current().ok_or(ConfigError::Machine {
        got: std::env::consts::ARCH,
    })?;
    let mut root = oci::Root::default();
    root.set_path(config.rootfs.clone())
        .set_readonly(Some(false));
    let mut spec = oci::Spec::default();
    spec.set_version(OCI_VERSION.to_owned())
        .set_hostname(Some(config.hostname.clone()))
        .set_root(Some(root))
        .set_process(Some(process(config)))
        .set_mounts(Some(mounts(config)))
        .set_annotations(None)
        .set_linux(Some(linux(config, arch)));
    Ok(spec)
}

fn process(config: &ContainerConfig) -> oci::Process {
    let env = config
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    let mut process = oci::Process::default();
    process
        .set_terminal(Some(false))
        .set_user(oci::User::default())
        .set_args(Some(config.args.clone()))
        .set_env(Some(env.collect()))
        .set_cwd(PathBuf::from("/"))
        .set_capabilities(Some(capabilities()))
        .set_rlimits(Some(vec![
            rlimit(
                oci::PosixRlimitType::RlimitNofile,
                SOFT_OPEN_FILES.min(config.open_files),
                config.open_files,
            ),
            // Where a core goes is the host's setting (core(5)), perhaps a program of the host.
            rlimit(oci::PosixRlimitType::RlimitCore, 0, 0),
        ]))
        .set_no_new_privileges(Some(true))
        // Left alone: a Space must not make itself the last to be killed, and an ordinary user
        // may not lower it.
        .set_oom_score_adj(None);
    process
}

fn rlimit(kind: oci::PosixRlimitType, soft: u64, hard: u64) -> oci::PosixRlimit {
    oci::PosixRlimitBuilder::default()
        .typ(kind)
        .soft(soft)
        .hard(hard)
        .build()
        .expect("no field is without a default")
}

/// What root in a Space may do: the default of Docker, containerd and Podman without raw packets
/// (`NET_RAW`), device nodes (`MKNOD`) and the host's audit log (`AUDIT_WRITE`). All hold only
/// within the Space's user namespace; capabilities(7).
fn capabilities() -> oci::LinuxCapabilities {
    use oci::Capability::{
        Chown, DacOverride, Fowner, Fsetid, Kill, NetBindService, Setfcap, Setgid, Setpcap, Setuid,
        SysChroot,
    };
    let held = oci::Capabilities::from([
        Chown,
        DacOverride,
        Fowner,
        Fsetid,
        Kill,
        NetBindService,
        Setfcap,
        Setgid,
        Setpcap,
        Setuid,
        SysChroot,
    ]);
    let mut capabilities = oci::LinuxCapabilities::default();
    capabilities
        .set_bounding(Some(held.clone()))
        .set_effective(Some(held.clone()))
        .set_permitted(Some(held))
        // What a program keeps when it is not root: nothing (CVE-2022-24769).
        .set_inheritable(Some(oci::Capabilities::new()))
        .set_ambient(Some(oci::Capabilities::new()));
    capabilities
}

fn mounts(config: &ContainerConfig) -> Vec<oci::Mount> {
    let mut pts = vec![
        "nosuid",
        "noexec",
        "newinstance",
        "ptmxmode=0666",
        "mode=0620",
    ];
    if check::is_mapped(&config.gid_map, TTY_GROUP) {
        pts.push("gid=5");
    }
    let half_the_memory = config
        .cgroup
        .as_ref()
        .map(|(_, limits)| format!("size={}", limits.memory_bytes / 2));
    // Without a limit the kernel's default holds: half of the host's memory.
    let shm = ["nosuid", "noexec", "nodev", "mode=1777"]
        .into_iter()
        .chain(half_the_memory.as_deref());
    let hardened = ["nosuid", "noexec", "nodev"];
    let mut mounts = vec![
        mount("proc", "/proc", "proc", hardened),
        mount(
            "tmpfs",
            "/dev",
            "tmpfs",
            ["nosuid", "noexec", "strictatime", "mode=755", "size=65536k"],
        ),
        mount("devpts", "/dev/pts", "devpts", pts),
        mount("mqueue", "/dev/mqueue", "mqueue", hardened),
        mount("tmpfs", "/dev/shm", "shm", shm),
        match &config.sysfs {
            None => mount(
                "sysfs",
                "/sys",
                "sysfs",
                ["nosuid", "noexec", "nodev", "ro"],
            ),
            Some(sysfs) => bind(
                sysfs,
                Path::new("/sys"),
                ["nosuid", "noexec", "nodev", "ro"],
            ),
        },
    ];
    match config.cgroup_mount {
        CgroupMount::Hidden => {}
        CgroupMount::ReadOnly => mounts.push(mount(
            "cgroup",
            "/sys/fs/cgroup",
            "cgroup",
            ["nosuid", "noexec", "nodev", "relatime", "ro"],
        )),
    }
    // As in a VM Space. Everything else, `/tmp` too, is the Space's own root.
    let quarter_of_the_memory = config
        .cgroup
        .as_ref()
        .map(|(_, limits)| format!("size={}", limits.memory_bytes / 4));
    let run = ["nosuid", "nodev", "mode=755"]
        .into_iter()
        .chain(quarter_of_the_memory.as_deref());
    mounts.push(mount("tmpfs", "/run", "tmpfs", run));
    mounts.extend(config.mounts.iter().map(|extra| {
        let access = if extra.writable { "rw" } else { "ro" };
        bind(&extra.source, &extra.target, ["nosuid", "nodev", access])
    }));
    mounts
}

fn mount<'a>(
    kind: &str,
    target: &str,
    source: &str,
    options: impl IntoIterator<Item = &'a str>,
) -> oci::Mount {
    let mut mount = oci::Mount::default();
    mount
        .set_destination(PathBuf::from(target))
        .set_typ(Some(kind.to_owned()))
        .set_source(Some(PathBuf::from(source)))
        .set_options(Some(options.into_iter().map(str::to_owned).collect()));
    mount
}

/// A file or folder of the host alone, without what is mounted below it.
fn bind<'a>(
    source: &Path,
    target: &Path,
    options: impl IntoIterator<Item = &'a str>,
) -> oci::Mount {
    let options = ["bind"].into_iter().chain(options);
    let mut mount = oci::Mount::default();
    mount
        .set_destination(target.to_owned())
        .set_typ(Some("bind".to_owned()))
        .set_source(Some(source.to_owned()))
        .set_options(Some(options.map(str::to_owned).collect()));
    mount
}

fn linux(config: &ContainerConfig, arch: Arch) -> oci::Linux {
    let mut linux = oci::Linux::default();
    linux
        .set_namespaces(Some(namespaces(config.netns.as_deref())))
        .set_uid_mappings(Some(id_mappings(&config.uid_map)))
        .set_gid_mappings(Some(id_mappings(&config.gid_map)))
        .set_seccomp(Some(seccomp_profile(arch)))
        .set_masked_paths(Some(masks::masked_paths(config.host_cpus)))
        .set_readonly_paths(Some(read_only_paths(config.cgroup_mount)))
        // Nothing that is mounted on the host later may appear in the Space.
        .set_rootfs_propagation(Some("rprivate".to_owned()))
        .set_resources(None);
    if let Some((path, limits)) = &config.cgroup {
        linux
            .set_cgroups_path(Some(PathBuf::from(path)))
            .set_resources(Some(resources(limits)));
    }
    if config.netns.is_none() {
        linux.set_sysctl(Some(sysctls(&config.gid_map)));
    }
    linux
}

fn read_only_paths(cgroup_mount: CgroupMount) -> Vec<String> {
    let mut paths = masks::read_only_paths();
    match cgroup_mount {
        CgroupMount::Hidden => {}
        // Where each controller has a mount of its own (version 1), the folder around them is a
        // file system in memory without a size.
        CgroupMount::ReadOnly => paths.push("/sys/fs/cgroup".to_owned()),
    }
    paths
}

fn namespaces(netns: Option<&Path>) -> Vec<oci::LinuxNamespace> {
    use oci::LinuxNamespaceType::{Cgroup, Ipc, Mount, Network, Pid, User, Uts};
    [User, Pid, Mount, Ipc, Uts, Cgroup, Network]
        .into_iter()
        .map(|kind| {
            let mut namespace = oci::LinuxNamespace::default();
            namespace.set_typ(kind);
            if kind == Network {
                namespace.set_path(netns.map(Path::to_owned));
            }
            namespace
        })
        .collect()
}

fn id_mappings(map: &[IdMapping]) -> Vec<oci::LinuxIdMapping> {
    map.iter()
        .map(|run| {
            oci::LinuxIdMappingBuilder::default()
                .container_id(run.inside)
                .host_id(run.outside)
                .size(run.count)
                .build()
                .expect("no field is without a default")
        })
        .collect()
}

/// What an unprivileged program may do with a network that is the Space's own: ping without raw
/// sockets, for every group there is, and serve on any port. Where a network namespace is joined,
/// it is not the Space's to set, and whoever made it does this.
fn sysctls(gid_map: &[IdMapping]) -> std::collections::HashMap<String, String> {
    let last_group = check::last_mapped_from_zero(gid_map);
    [
        ("net.ipv4.ping_group_range", format!("0 {last_group}")),
        ("net.ipv4.ip_unprivileged_port_start", "0".to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

fn resources(limits: &Limits) -> oci::LinuxResources {
    let bytes = i64::try_from(limits.memory_bytes).unwrap_or(i64::MAX);
    let mut memory = oci::LinuxMemory::default();
    memory.set_limit(Some(bytes));
    if limits.can_limit_swap {
        // Memory and swap together: no swap.
        memory.set_swap(Some(bytes));
    }
    let mut cpu = oci::LinuxCpu::default();
    cpu.set_period(Some(CPU_PERIOD_US))
        .set_quota(Some(i64::from(limits.cpus) * CPU_PERIOD_US.cast_signed()));
    let mut pids = oci::LinuxPids::default();
    pids.set_limit(limits.pids);
    let mut resources = oci::LinuxResources::default();
    if limits.can_limit_devices {
        let mut nothing = oci::LinuxDeviceCgroup::default();
        nothing.set_allow(false).set_access(Some("rwm".to_owned()));
        // The runtime adds the harmless ones (null, zero, random, terminals) back.
        resources.set_devices(Some(vec![nothing]));
    }
    resources
        .set_memory(Some(memory))
        .set_cpu(Some(cpu))
        .set_pids(Some(pids));
    resources
}

#[cfg(test)]
mod tests;
