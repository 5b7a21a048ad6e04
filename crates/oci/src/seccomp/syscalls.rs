//! The tables: which system calls a Space may make, and which it may not, grouped by purpose.
//!
//! Written from Docker's documentation ("Seccomp security profiles for Docker", the table of
//! significant system calls its default profile blocks, each with its reason) and the manual
//! pages syscalls(2), capabilities(7) and those of the calls themselves. A call that needs a
//! capability which no Space has is left out unless it does something useful without it.
//!
//! A name that does not exist on an architecture, or is younger than the runtime's libseccomp, is
//! passed over by the runtime, so one table serves all.

/// System calls that belong together, and why they are treated as they are.
pub(super) struct Group {
    /// Why the calls are allowed, or are not.
    pub(super) reason: &'static str,
    /// Their names, as libseccomp and the manual pages spell them.
    pub(super) calls: &'static [&'static str],
}

/// What every Space may call, whatever the arguments.
#[rustfmt::skip] // One name a line would take a thousand lines.
pub(super) const ALLOWED: &[Group] = &[
    Group {
        reason: "read and write what is open, and open what permissions allow",
        calls: &[
            "_llseek", "arm_fadvise64_64", "arm_sync_file_range", "cachestat", "close",
            "close_range", "copy_file_range", "creat", "dup", "dup2", "dup3", "fadvise64",
            "fadvise64_64", "fallocate", "fcntl", "fcntl64", "fdatasync", "flock", "fsync",
            "ftruncate", "ftruncate64", "ioctl", "lseek", "open", "openat", "openat2", "pipe",
            "pipe2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read",
            "readahead", "readv", "sendfile", "sendfile64", "splice", "sync", "sync_file_range",
            "sync_file_range2", "syncfs", "tee", "truncate", "truncate64", "umask", "vmsplice",
            "write", "writev",
        ],
    },
    Group {
        // A handle opens nothing without open_by_handle_at, which stays out.
        reason: "read and change what is known about files; a handle only names one",
        calls: &[
            "access", "chmod", "chown", "chown32", "faccessat", "faccessat2", "fchmod",
            "fchmodat", "fchmodat2", "fchown", "fchown32", "fchownat", "fgetxattr", "flistxattr",
            "fremovexattr", "fsetxattr", "fstat", "fstat64", "fstatat64", "fstatfs", "fstatfs64",
            "futimesat", "getxattr", "getxattrat", "lchown", "lchown32", "lgetxattr", "listxattr",
            "listxattrat", "llistxattr", "lremovexattr", "lsetxattr", "lstat", "lstat64",
            "name_to_handle_at", "newfstatat", "removexattr", "removexattrat", "setxattr",
            "setxattrat", "stat", "stat64", "statfs", "statfs64", "statx", "utime", "utimensat",
            "utimensat_time64", "utimes",
        ],
    },
    Group {
        // Device nodes need CAP_MKNOD in the first user namespace; FIFOs and sockets need nothing.
        reason: "move about in the tree and change it; mknod makes no device here",
        calls: &[
            "chdir", "chroot", "fchdir", "getcwd", "getdents", "getdents64", "link", "linkat",
            "mkdir", "mkdirat", "mknod", "mknodat", "readdir", "readlink", "readlinkat", "rename",
            "renameat", "renameat2", "rmdir", "symlink", "symlinkat", "unlink", "unlinkat",
        ],
    },
    Group {
        reason: "wait for events of one's own descriptors and files",
        calls: &[
            "_newselect", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_ctl_old",
            "epoll_pwait", "epoll_pwait2", "epoll_wait", "epoll_wait_old", "eventfd", "eventfd2",
            "fanotify_mark", "inotify_add_watch", "inotify_init", "inotify_init1",
            "inotify_rm_watch", "poll", "ppoll", "ppoll_time64", "pselect6", "pselect6_time64",
            "select", "signalfd", "signalfd4", "timerfd_create", "timerfd_gettime",
            "timerfd_gettime64", "timerfd_settime", "timerfd_settime64",
        ],
    },
    Group {
        reason: "the old asynchronous I/O, which databases use; io_uring stays out",
        calls: &[
            "io_cancel", "io_destroy", "io_getevents", "io_pgetevents", "io_pgetevents_time64",
            "io_setup", "io_submit",
        ],
    },
    Group {
        reason: "one's own memory",
        calls: &[
            "brk", "madvise", "map_shadow_stack", "memfd_create", "memfd_secret", "mincore",
            "mlock", "mlock2", "mlockall", "mmap", "mmap2", "mprotect", "mremap", "mseal",
            "msync", "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free",
            "pkey_mprotect", "remap_file_pages",
        ],
    },
    Group {
        // clone and clone3 have rules of their own; see the parent module.
        reason: "start programs, threads and their ends",
        calls: &[
            "arch_prctl", "breakpoint", "cacheflush", "execve", "execveat", "exit", "exit_group",
            "fork", "get_robust_list", "get_thread_area", "getpgid", "getpgrp", "getpid",
            "getppid", "getsid", "gettid", "modify_ldt", "pidfd_open", "prctl",
            "process_mrelease", "rseq", "set_robust_list", "set_thread_area", "set_tid_address",
            "set_tls", "setpgid", "setsid", "vfork", "wait4", "waitid", "waitpid",
        ],
    },
    Group {
        // Both only answer a trampoline that the kernel itself put there, for a tracer outside.
        reason: "return through the probes of a tracer on the host instead of dying there",
        calls: &["uprobe", "uretprobe"],
    },
    Group {
        reason: "signals, which reach only processes in the Space",
        calls: &[
            "alarm", "kill", "pause", "pidfd_send_signal", "restart_syscall", "rt_sigaction",
            "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn",
            "rt_sigsuspend", "rt_sigtimedwait", "rt_sigtimedwait_time64", "rt_tgsigqueueinfo",
            "sgetmask", "sigaction", "sigaltstack", "signal", "sigpending", "sigprocmask",
            "sigreturn", "sigsuspend", "ssetmask", "tgkill", "tkill",
        ],
    },
    Group {
        reason: "locks between threads and processes",
        calls: &[
            "futex", "futex_requeue", "futex_time64", "futex_wait", "futex_waitv", "futex_wake",
            "membarrier",
        ],
    },
    Group {
        reason: "scheduling, priorities and limits, which the kernel checks call by call",
        calls: &[
            "getcpu", "getpriority", "getrlimit", "getrusage", "ioprio_get", "ioprio_set", "nice",
            "prlimit64", "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity",
            "sched_getattr", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval",
            "sched_rr_get_interval_time64", "sched_setaffinity", "sched_setattr",
            "sched_setparam", "sched_setscheduler", "sched_yield", "setpriority", "setrlimit",
            "ugetrlimit",
        ],
    },
    Group {
        reason: "users, groups and capabilities, within the ids and the bounds of the Space",
        calls: &[
            "capget", "capset", "getegid", "getegid32", "geteuid", "geteuid32", "getgid",
            "getgid32", "getgroups", "getgroups32", "getresgid", "getresgid32", "getresuid",
            "getresuid32", "getuid", "getuid32", "setfsgid", "setfsgid32", "setfsuid",
            "setfsuid32", "setgid", "setgid32", "setgroups", "setgroups32", "setregid",
            "setregid32", "setresgid", "setresgid32", "setresuid", "setresuid32", "setreuid",
            "setreuid32", "setuid", "setuid32",
        ],
    },
    Group {
        // adjtimex only reads without CAP_SYS_TIME.
        reason: "read the clocks, sleep, and set timers of one's own",
        calls: &[
            "adjtimex", "clock_getres", "clock_getres_time64", "clock_gettime",
            "clock_gettime64", "clock_nanosleep", "clock_nanosleep_time64", "getitimer",
            "gettimeofday", "nanosleep", "setitimer", "time", "timer_create", "timer_delete",
            "timer_getoverrun", "timer_gettime", "timer_gettime64", "timer_settime",
            "timer_settime64", "times",
        ],
    },
    Group {
        // socket and socketcall have rules of their own; see the parent module.
        reason: "use sockets, once a family is allowed",
        calls: &[
            "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt",
            "listen", "recv", "recvfrom", "recvmmsg", "recvmmsg_time64", "recvmsg", "send",
            "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown", "socketpair",
        ],
    },
    Group {
        reason: "queues, semaphores and shared memory of the Space's own ipc namespace",
        calls: &[
            "ipc", "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive",
            "mq_timedreceive_time64", "mq_timedsend", "mq_timedsend_time64", "mq_unlink",
            "msgctl", "msgget", "msgrcv", "msgsnd", "semctl", "semget", "semop", "semtimedop",
            "semtimedop_time64", "shmat", "shmctl", "shmdt", "shmget",
        ],
    },
    Group {
        reason: "give up more rights: a program's own sandbox",
        calls: &[
            "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "seccomp",
        ],
    },
    Group {
        // Since Linux 4.8 a tracer cannot carry a call past the filter. Whoever may trace a
        // process may read its memory anyway, so debuggers get the fast way too.
        reason: "debug one's own processes (Linux 4.8 and later filter what a tracer changes)",
        calls: &["process_vm_readv", "process_vm_writev", "ptrace"],
    },
    Group {
        reason: "read what the system is, and random bytes",
        calls: &["getrandom", "oldolduname", "olduname", "sysinfo", "uname"],
    },
];

/// What no Space may call, with the reason. Whatever stands in neither table is refused too, as if
/// the kernel did not have it.
#[rustfmt::skip] // One name a line would take a thousand lines.
pub(super) const BLOCKED: &[Group] = &[
    Group {
        reason: "mounting changes what paths mean, and its code is a road to the kernel",
        calls: &[
            "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount",
            "open_tree", "pivot_root", "umount", "umount2",
        ],
    },
    Group {
        reason: "a new namespace gives all capabilities inside it, and the kernel code they open",
        calls: &["setns", "unshare"],
    },
    Group {
        reason: "kernel modules and another kernel are the host's",
        calls: &[
            "create_module", "delete_module", "finit_module", "get_kernel_syms", "init_module",
            "kexec_file_load", "kexec_load", "query_module",
        ],
    },
    Group {
        reason: "the kernel's keyrings have no namespace",
        calls: &["add_key", "keyctl", "request_key"],
    },
    Group {
        reason: "programs in the kernel and measurements of it tell of the host, or change it",
        calls: &["bpf", "lookup_dcookie", "perf_event_open", "syslog"],
    },
    Group {
        reason: "a large way into the kernel with a history of escapes, past this filter's sight",
        calls: &["io_uring_enter", "io_uring_register", "io_uring_setup"],
    },
    Group {
        reason: "halting the kernel in a page fault makes races in it easy to win",
        calls: &["userfaultfd"],
    },
    Group {
        reason: "a file's handle opens it from outside any root: an old escape",
        calls: &["open_by_handle_at"],
    },
    Group {
        reason: "the clock is the host's",
        calls: &[
            "clock_adjtime", "clock_adjtime64", "clock_settime", "clock_settime64",
            "settimeofday", "stime",
        ],
    },
    Group {
        reason: "power, swap, accounting, quotas, names and terminals are the host's",
        calls: &[
            "acct", "quotactl", "quotactl_fd", "reboot", "setdomainname", "sethostname",
            "swapoff", "swapon", "vhangup",
        ],
    },
    Group {
        reason: "ports and real mode are hardware",
        calls: &["ioperm", "iopl", "vm86", "vm86old"],
    },
    Group {
        reason: "placing memory on nodes acts on the host's, and moves other people's pages",
        calls: &[
            "get_mempolicy", "mbind", "migrate_pages", "move_pages", "set_mempolicy",
            "set_mempolicy_home_node",
        ],
    },
    Group {
        reason: "looks into other processes more than a debugger needs",
        calls: &["kcmp", "pidfd_getfd", "process_madvise"],
    },
    Group {
        reason: "watching a whole file system needs a capability that no Space has",
        calls: &["fanotify_init"],
    },
    Group {
        reason: "obsolete",
        calls: &[
            "_sysctl", "afs_syscall", "getpmsg", "nfsservctl", "putpmsg", "security", "sysfs",
            "tuxcall", "uselib", "ustat", "vserver",
        ],
    },
];
