//! The system calls a Space may make.
//!
//! An allow-list: what is not named fails with `EPERM`. Its strength is that of Docker's default
//! profile, from the facts that Docker documents (<https://docs.docker.com/engine/security/seccomp/>)
//! and the manual pages; the tables say why each group is in or out. Four calls are decided by
//! their arguments, which seccomp sees only as numbers, never behind a pointer:
//!
//! | call | rule | reason |
//! |---|---|---|
//! | `clone` | no `CLONE_NEW*` flag | a new user namespace would bring all capabilities back |
//! | `clone3` | `ENOSYS` | its flags lie behind a pointer; C libraries then use `clone` |
//! | `socket` | [`FAMILIES`] alone | no `AF_VSOCK` (reaches the hypervisor), no `AF_ALG` (CVE-2026-31431), no family that loads a module for its sake |
//! | `socketcall` | `ENOSYS` | the 32-bit multiplexer would carry any family past the rule above |
//! | `personality` | [`PERSONALITIES`] alone | BSD and other emulations are hardly tested |
//!
//! Arguments are compared whole, 64 bits wide, and only ever for equality: a rule "not 40" would
//! let `(1 << 32) | 40` by, of which the kernel then uses the lower half.
//!
//! 32-bit programs run, but cannot open sockets where their C library still uses `socketcall`.
//! The x32 calls are refused by ending the process: hardly a distribution has them, and they
//! doubled the kernel's doors. Calls younger than the profile fail with `ENOSYS` under `runc`,
//! which compares them with the youngest call the profile names.

mod syscalls;

use oci_spec::runtime::{
    Arch as ScmpArch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder,
    LinuxSeccompOperator, LinuxSyscall,
};

use syscalls::{ALLOWED, BLOCKED, UNKNOWN};

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// `CLONE_NEWCGROUP`, `NEWUTS`, `NEWIPC`, `NEWUSER`, `NEWPID`, `NEWNET` and `NEWNS`; clone(2).
/// `CLONE_NEWTIME` shares its bit with the exit signal, so `clone` cannot ask for it.
const CLONE_NAMESPACES: u64 = 0x7E00_0000 | 0x0002_0000;

/// The socket families of a Space: `AF_UNIX`, `AF_INET`, `AF_INET6`, `AF_NETLINK`, `AF_PACKET`
/// (which needs a capability, and says so itself); `address_families(7)`.
pub const FAMILIES: &[u64] = &[1, 2, 10, 16, 17];

/// The execution domains of a Space: Linux, 32-bit Linux, each also with the version of Linux
/// 2.6, without address randomisation (debuggers and sanitizers), and the question what is set;
/// personality(2).
pub const PERSONALITIES: &[u64] = &[
    0x0000_0000,
    0x0000_0008,
    0x0002_0000,
    0x0002_0008,
    0x0004_0000,
    0xFFFF_FFFF,
];

/// The machines a Space can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit PC.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

impl Arch {
    /// The machine this program was built for, where Spaces are known to run on it.
    pub fn current() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// The instruction sets whose programs run; a call from any other ends its process.
    fn instruction_sets(self) -> Vec<ScmpArch> {
        match self {
            Self::X86_64 => vec![ScmpArch::ScmpArchX86_64, ScmpArch::ScmpArchX86],
            Self::Aarch64 => vec![ScmpArch::ScmpArchAarch64, ScmpArch::ScmpArchArm],
        }
    }
}

/// The filter for a Space on this machine.
pub fn seccomp_profile(arch: Arch) -> LinuxSeccomp {
    // Refusals go first: libseccomp derives rules for `socketcall` from those for `socket`, and
    // the first rule for a call wins. A refusal by the default errno would be left out by runc.
    let mut rules = vec![rule(
        &["clone3", "socketcall"],
        Answer::Errno(ENOSYS),
        Vec::new(),
    )];
    rules.push(rule(UNKNOWN.calls, Answer::Errno(ENOSYS), Vec::new()));
    for group in ALLOWED {
        rules.push(rule(group.calls, Answer::Allow, Vec::new()));
    }
    rules.push(rule(
        &["clone"],
        Answer::Allow,
        vec![argument_without_bits(CLONE_NAMESPACES)],
    ));
    for family in FAMILIES {
        rules.push(rule(&["socket"], Answer::Allow, vec![argument_is(*family)]));
    }
    for domain in PERSONALITIES {
        rules.push(rule(
            &["personality"],
            Answer::Allow,
            vec![argument_is(*domain)],
        ));
    }
    let mut profile = LinuxSeccomp::default();
    profile
        .set_default_action(LinuxSeccompAction::ScmpActErrno)
        .set_default_errno_ret(Some(EPERM))
        .set_architectures(Some(arch.instruction_sets()))
        .set_syscalls(Some(rules));
    profile
}

/// Every call that is refused on purpose, with the reason; for documents and tests.
pub fn blocked_syscalls() -> impl Iterator<Item = (&'static str, &'static str)> {
    BLOCKED
        .iter()
        .flat_map(|group| group.calls.iter().map(|call| (*call, group.reason)))
}

/// Every call that is allowed whatever its arguments, with the reason.
pub fn allowed_syscalls() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALLOWED
        .iter()
        .flat_map(|group| group.calls.iter().map(|call| (*call, group.reason)))
}

#[derive(Clone, Copy)]
enum Answer {
    Allow,
    Errno(u32),
}

fn rule(calls: &[&str], answer: Answer, arguments: Vec<LinuxSeccompArg>) -> LinuxSyscall {
    let mut rule = LinuxSyscall::default();
    rule.set_names(calls.iter().map(ToString::to_string).collect());
    match answer {
        Answer::Allow => rule.set_action(LinuxSeccompAction::ScmpActAllow),
        Answer::Errno(errno) => rule
            .set_action(LinuxSeccompAction::ScmpActErrno)
            .set_errno_ret(Some(errno)),
    };
    if !arguments.is_empty() {
        rule.set_args(Some(arguments));
    }
    rule
}

/// The first argument is exactly this.
fn argument_is(value: u64) -> LinuxSeccompArg {
    LinuxSeccompArgBuilder::default()
        .index(0_usize)
        .op(LinuxSeccompOperator::ScmpCmpEq)
        .value(value)
        .build()
        .expect("no field is without a default")
}

/// The first argument has none of these bits: `argument & bits == 0`.
fn argument_without_bits(bits: u64) -> LinuxSeccompArg {
    LinuxSeccompArgBuilder::default()
        .index(0_usize)
        .op(LinuxSeccompOperator::ScmpCmpMaskedEq)
        .value(bits)
        .value_two(0_u64)
        .build()
        .expect("no field is without a default")
}

#[cfg(test)]
mod tests;
