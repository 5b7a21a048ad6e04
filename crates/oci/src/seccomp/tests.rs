use std::collections::BTreeSet;

use super::*;

/// Decided by their arguments, or by an errno of their own.
const SPECIAL: &[&str] = &["clone", "clone3", "personality", "socket", "socketcall"];

fn calls(group: impl Iterator<Item = (&'static str, &'static str)>) -> Vec<&'static str> {
    group.map(|(call, _)| call).collect()
}

#[test]
fn no_call_stands_twice_in_the_tables() {
    let mut seen = BTreeSet::new();
    let all = calls(allowed_syscalls())
        .into_iter()
        .chain(calls(blocked_syscalls()))
        .chain(SPECIAL.iter().copied());
    for call in all {
        assert!(seen.insert(call), "{call} stands twice");
    }
}

#[test]
fn groups_are_sorted_and_say_why() {
    for group in ALLOWED.iter().chain(BLOCKED) {
        assert!(!group.reason.is_empty());
        assert!(group.calls.is_sorted(), "{}", group.reason);
    }
}

/// The table of Docker's documentation, less what it blocks only on kernels before 4.8 (`ptrace`),
/// what tracing gives anyway (`process_vm_*`), and what goes by argument (`clone`, `personality`).
#[test]
fn what_docker_documents_as_blocked_is_blocked() {
    #[rustfmt::skip] // As it is read, not one a line.
    let documented = [
        "acct", "add_key", "bpf", "clock_adjtime", "clock_settime", "create_module",
        "delete_module", "finit_module", "get_kernel_syms", "get_mempolicy", "init_module",
        "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie",
        "mbind", "mount", "move_pages", "nfsservctl", "open_by_handle_at", "perf_event_open",
        "pivot_root", "query_module", "quotactl", "reboot", "request_key", "set_mempolicy",
        "setns", "settimeofday", "stime", "swapoff", "swapon", "sysfs", "_sysctl", "umount",
        "umount2", "unshare", "uselib", "userfaultfd", "ustat", "vm86", "vm86old",
    ];
    let blocked = calls(blocked_syscalls());
    for call in documented {
        assert!(blocked.contains(&call), "{call}");
    }
}

#[test]
fn calls_decided_by_argument_are_allowed_in_no_other_way() {
    for arch in [Arch::X86_64, Arch::Aarch64] {
        let profile = seccomp_profile(arch);
        for rule in profile.syscalls().iter().flatten() {
            let is_special = rule
                .names()
                .iter()
                .any(|name| SPECIAL.contains(&name.as_str()));
            if is_special && rule.action() == LinuxSeccompAction::ScmpActAllow {
                assert!(rule.args().is_some(), "{:?}", rule.names());
                assert_eq!(rule.names().len(), 1);
            }
        }
    }
}

#[test]
fn x32_is_no_instruction_set_of_a_space() {
    let profile = seccomp_profile(Arch::X86_64);
    let sets = profile.architectures().clone().unwrap();
    assert!(!sets.contains(&ScmpArch::ScmpArchX32));
    assert_eq!(profile.default_action(), LinuxSeccompAction::ScmpActErrno);
    assert_eq!(profile.default_errno_ret(), Some(ENOSYS));
}

#[test]
fn every_family_is_decided_once() {
    let rules: Vec<_> = socket_rules().collect();
    let allowed = rules
        .iter()
        .filter(|rule| rule.action() == LinuxSeccompAction::ScmpActAllow);
    assert_eq!(allowed.count(), FAMILIES.len());
    let values: BTreeSet<_> = rules
        .iter()
        .map(|rule| rule.args().as_ref().unwrap()[0])
        .map(|argument| (argument.op() as u32, argument.value()))
        .collect();
    // 0 to 17, and all above.
    assert_eq!(values.len(), 19);
    assert_eq!(rules.len(), 19);
}

/// runc leaves out a rule that says what the default says, and with it the protection that this
/// rule gives against the ones libseccomp derives.
#[test]
fn socketcall_comes_first_and_differs_from_any_default() {
    let profile = seccomp_profile(Arch::X86_64);
    let first = &profile.syscalls().as_ref().unwrap()[0];
    assert_eq!(first.names(), &["socketcall"]);
    assert_eq!(first.action(), LinuxSeccompAction::ScmpActErrno);
    let errno = first.errno_ret().unwrap();
    assert!(errno != EPERM && Some(errno) != profile.default_errno_ret());
}
