//! The system calls a Space may make.
//!
//! An allow-list of the strength of Docker's default profile, from the facts that Docker documents
//! (<https://docs.docker.com/engine/security/seccomp/>) and the manual pages; the tables say why
//! each group is in or out. What is refused on purpose fails with `EPERM`, as under Docker. All
//! else, above all calls younger than this table or than the runtime's libseccomp, fails with
//! `ENOSYS`, as on a kernel without it: C libraries then take the older way, while `EPERM` would
//! stop them. Five calls are decided by their arguments or have an answer of their own; seccomp
//! sees arguments only as numbers, never what lies behind a pointer:
//!
//! | call | rule | reason |
//! |---|---|---|
//! | `clone` | no `CLONE_NEW*` flag | a new user namespace would bring all capabilities back |
//! | `clone3` | `ENOSYS` | its flags lie behind a pointer; C libraries then use `clone` |
//! | `socket` | [`FAMILIES`] alone | no `AF_VSOCK` (reaches the hypervisor), no `AF_ALG` (CVE-2026-31431), no family that loads a module for its sake |
//! | `socketcall` | `EAFNOSUPPORT` | the 32-bit multiplexer would carry any family past the rule above |
//! | `personality` | [`PERSONALITIES`] alone, else `ENOSYS` | BSD and other emulations are hardly tested |
//!
//! Arguments are compared whole, 64 bits wide, and allowed only where they are equal: a rule
//! "not 40" would let `(1 << 32) | 40` by, of which the kernel then uses the lower half.
//!
//! 32-bit programs run, but cannot open sockets where their C library still uses `socketcall`.
//! The x32 calls are refused by ending the process: hardly a distribution has them, and they
//! double the kernel's doors.

mod syscalls;

use oci_spec::runtime::{
    Arch as ScmpArch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder,
    LinuxSeccompOperator as Compare, LinuxSyscall,
};

use syscalls::{ALLOWED, BLOCKED};

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
const EAFNOSUPPORT: u32 = 97;

/// `CLONE_NEWNS`, `NEWCGROUP`, `NEWUTS`, `NEWIPC`, `NEWUSER`, `NEWPID` and `NEWNET`; clone(2).
/// `CLONE_NEWTIME` shares its bit with the exit signal, so `clone` cannot ask for it.
const CLONE_NAMESPACES: [u64; 7] = [
    0x0002_0000,
    0x0200_0000,
    0x0400_0000,
    0x0800_0000,
    0x1000_0000,
    0x2000_0000,
    0x4000_0000,
];

/// The socket families of a Space: `AF_UNIX`, `AF_INET`, `AF_INET6`, `AF_NETLINK`, `AF_PACKET`
/// (which needs a capability, and says so itself); `address_families(7)`.
pub const FAMILIES: [u64; 5] = [1, 2, 10, 16, 17];

/// The execution domains of a Space: Linux, 32-bit Linux, each also with the version of Linux
/// 2.6, without address randomisation (debuggers and sanitizers), and the question what is set;
/// personality(2).
pub const PERSONALITIES: [u64; 6] = [
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
    // socketcall goes first: libseccomp derives a rule for it from every one for `socket`, and the
    // first for a call wins. Its errno is not the default's, because runc leaves such rules out;
    // nor is it EPERM, the default of runtimes that are too old to know of another.
    let mut rules = vec![
        rule(&["socketcall"], Answer::Errno(EAFNOSUPPORT), None),
        rule(&["clone3"], Answer::Errno(ENOSYS), None),
    ];
    for group in ALLOWED {
        rules.push(rule(group.calls, Answer::Allow, None));
    }
    for group in BLOCKED {
        rules.push(rule(group.calls, Answer::Errno(EPERM), None));
    }
    rules.extend(clone_rules());
    rules.extend(socket_rules());
    for domain in PERSONALITIES {
        let argument = argument(Compare::ScmpCmpEq, domain, None);
        rules.push(rule(&["personality"], Answer::Allow, Some(argument)));
    }
    let mut profile = LinuxSeccomp::default();
    profile
        .set_default_action(LinuxSeccompAction::ScmpActErrno)
        .set_default_errno_ret(Some(ENOSYS))
        .set_architectures(Some(arch.instruction_sets()))
        .set_syscalls(Some(rules));
    profile
}

fn clone_rules() -> impl Iterator<Item = LinuxSyscall> {
    let all = CLONE_NAMESPACES.iter().fold(0, |bits, flag| bits | flag);
    let plain = argument(Compare::ScmpCmpMaskedEq, all, Some(0));
    let refused = CLONE_NAMESPACES.into_iter().map(|flag| {
        let argument = argument(Compare::ScmpCmpMaskedEq, flag, Some(flag));
        rule(&["clone"], Answer::Errno(EPERM), Some(argument))
    });
    [rule(&["clone"], Answer::Allow, Some(plain))]
        .into_iter()
        .chain(refused)
}

fn socket_rules() -> impl Iterator<Item = LinuxSyscall> {
    let last = FAMILIES.into_iter().max().unwrap_or_default();
    let above = argument(Compare::ScmpCmpGt, last, None);
    (0..=last)
        .map(|family| {
            let answer = if FAMILIES.contains(&family) {
                Answer::Allow
            } else {
                Answer::Errno(EPERM)
            };
            let argument = argument(Compare::ScmpCmpEq, family, None);
            rule(&["socket"], answer, Some(argument))
        })
        .chain([rule(&["socket"], Answer::Errno(EPERM), Some(above))])
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

fn rule(calls: &[&str], answer: Answer, argument: Option<LinuxSeccompArg>) -> LinuxSyscall {
    let mut rule = LinuxSyscall::default();
    rule.set_names(calls.iter().map(ToString::to_string).collect())
        .set_args(argument.map(|argument| vec![argument]));
    match answer {
        Answer::Allow => rule.set_action(LinuxSeccompAction::ScmpActAllow),
        Answer::Errno(errno) => rule
            .set_action(LinuxSeccompAction::ScmpActErrno)
            .set_errno_ret(Some(errno)),
    };
    rule
}

/// A condition on the first argument. With a mask the specification has the mask where the value
/// is otherwise, and the value second.
fn argument(compare: Compare, value: u64, value_two: Option<u64>) -> LinuxSeccompArg {
    let argument = LinuxSeccompArgBuilder::default()
        .index(0_usize)
        .op(compare)
        .value(value);
    let argument = match value_two {
        Some(value) => argument.value_two(value),
        None => argument,
    };
    argument.build().expect("no field is without a default")
}

#[cfg(test)]
mod tests;
