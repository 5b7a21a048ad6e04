//! Starting a program without copying this process.
//!
//! `posix_spawn` cannot switch users, enter a cgroup or make a terminal the controlling one, and
//! what the standard library does instead (fork) copies the page tables of a whole server. This
//! shares the memory with the child until it executes its program, as `vfork` does, for every
//! kind of start.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::process::Pid;

/// Stack of the child until it executes its program. It calls little, and nothing deep.
const STACK_BYTES: usize = 32 * 1024;
/// `CLOSE_RANGE_CLOEXEC`
const CLOSE_ON_EXEC: libc::c_uint = 4;
/// Highest signal number.
const LAST_SIGNAL: c_int = 64;

/// The user to become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

/// What to start, and how.
pub(crate) struct Plan<'a> {
    /// Files to execute, tried in order until one exists.
    pub(crate) programs: &'a [CString],
    pub(crate) args: &'a [CString],
    pub(crate) env: &'a [CString],
    pub(crate) cwd: &'a CString,
    /// What becomes standard input, output and error.
    pub(crate) stdio: [BorrowedFd<'a>; 3],
    /// Standard input is a terminal and becomes the controlling one.
    pub(crate) terminal: bool,
    pub(crate) ids: Option<&'a Ids>,
    /// The `cgroup.procs` file of the group to enter.
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
}

/// A started program: the leader of its own session and process group.
#[derive(Debug)]
pub(crate) struct Spawned {
    pub(crate) pid: Pid,
    /// Becomes readable when it ends.
    pub(crate) pidfd: OwnedFd,
}

/// Which step of a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Clone,
    Stdio,
    Terminal,
    User,
    Folder,
    Execute,
}

/// Why nothing was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpawnFailure {
    pub(crate) step: Step,
    pub(crate) errno: Errno,
}

/// What parent and child share until the program runs. Only raw values: the child must neither
/// allocate nor drop anything.
struct Shared<'a> {
    programs: &'a [*const c_char],
    args: *const *const c_char,
    env: *const *const c_char,
    cwd: *const c_char,
    stdio: [c_int; 3],
    terminal: bool,
    ids: Option<&'a Ids>,
    cgroup: Option<c_int>,
    failure: Option<(Step, c_int)>,
}

/// Starts a program; returns once it runs or could not be run.
pub(crate) fn spawn(plan: &Plan<'_>) -> Result<Spawned, SpawnFailure> {
    let pointers = |strings: &[CString]| {
        let mut pointers: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
        pointers.push(ptr::null());
        pointers
    };
    let (args, env) = (pointers(plan.args), pointers(plan.env));
    let programs = pointers(plan.programs);
    let mut shared = Shared {
        programs: &programs[..plan.programs.len()],
        args: args.as_ptr(),
        env: env.as_ptr(),
        cwd: plan.cwd.as_ptr(),
        stdio: plan.stdio.map(|fd| fd.as_raw_fd()),
        terminal: plan.terminal,
        ids: plan.ids,
        cgroup: plan.cgroup.map(|fd| fd.as_raw_fd()),
        failure: None,
    };
    let mut stack: Box<[MaybeUninit<u128>]> =
        Box::new_uninit_slice(STACK_BYTES / size_of::<u128>());
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let mut pidfd: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let signals = block_signals();
    // SAFETY: the child runs `child` on its own stack, whose end is aligned to 16 bytes and which
    // outlives it, as does `shared`: CLONE_VFORK stops this thread until the child has executed
    // its program or ended. All signals are blocked, so no handler of this process runs in the
    // child. `pidfd` is where CLONE_PIDFD stores the descriptor.
    let pid = unsafe {
        libc::clone(
            child,
            top,
            flags,
            (&raw mut shared).cast::<c_void>(),
            &raw mut pidfd,
        )
    };
    let clone_errno = last_errno();
    restore_signals(&signals);
    drop(stack);
    let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 0) else {
        let errno = Errno::from_raw_os_error(clone_errno);
        return Err(SpawnFailure {
            step: Step::Clone,
            errno,
        });
    };
    // SAFETY: the call succeeded, so this is a new descriptor that nobody else has.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    // SAFETY: `shared` is valid; the child wrote it behind the compiler's back.
    let failure = unsafe { ptr::read_volatile(&raw const shared.failure) };
    if let Some((step, errno)) = failure {
        // It has ended already; this only buries it.
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        let errno = Errno::from_raw_os_error(errno);
        return Err(SpawnFailure { step, errno });
    }
    Ok(Spawned { pid, pidfd })
}

/// Runs in the child, on shared memory: system calls and plain stores alone.
extern "C" fn child(shared: *mut c_void) -> c_int {
    // SAFETY: the pointer is the parent's `Shared`, which nobody else touches meanwhile.
    let shared = unsafe { &mut *shared.cast::<Shared<'_>>() };
    shared.failure = Some(become_program(shared));
    // SAFETY: ends this process alone, without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

/// Returns only when a step failed.
fn become_program(shared: &Shared<'_>) -> (Step, c_int) {
    // SAFETY: every call below gets integers or pointers to data that the parent keeps alive and
    // NUL-terminated. The user and group calls are the raw ones on purpose: glibc's would change
    // the threads of the parent too.
    unsafe {
        libc::setsid();
        if let Some(cgroup) = shared.cgroup {
            // A group that vanished leaves the program in ours, where it still can be killed.
            libc::write(cgroup, c"0".as_ptr().cast(), 1);
        }
        for signal in 1..=LAST_SIGNAL {
            libc::signal(signal, libc::SIG_DFL);
        }
        for (target, fd) in (0..).zip(shared.stdio) {
            if libc::dup2(fd, target) == -1 {
                return (Step::Stdio, last_errno());
            }
        }
        if shared.terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) == -1 {
            return (Step::Terminal, last_errno());
        }
        if let Some(ids) = shared.ids {
            let groups = (ids.groups.len(), ids.groups.as_ptr());
            if libc::syscall(libc::SYS_setgroups, groups.0, groups.1) == -1
                || libc::syscall(libc::SYS_setresgid, ids.gid, ids.gid, ids.gid) == -1
                || libc::syscall(libc::SYS_setresuid, ids.uid, ids.uid, ids.uid) == -1
            {
                return (Step::User, last_errno());
            }
        }
        if libc::chdir(shared.cwd) == -1 {
            return (Step::Folder, last_errno());
        }
        // All are closed on execution already; this holds for any that a library opens otherwise.
        libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, CLOSE_ON_EXEC);
        let mut none = MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
        let mut reason = libc::ENOENT;
        for program in shared.programs {
            // Far cheaper than a failing execution, which builds a whole address space first.
            if libc::access(*program, libc::F_OK) == -1
                && matches!(last_errno(), libc::ENOENT | libc::ENOTDIR)
            {
                continue;
            }
            libc::execve(*program, shared.args, shared.env);
            match last_errno() {
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => reason = libc::EACCES,
                errno => return (Step::Execute, errno),
            }
        }
        (Step::Execute, reason)
    }
}

fn last_errno() -> c_int {
    // SAFETY: always points to this thread's error number.
    unsafe { *libc::__errno_location() }
}

fn block_signals() -> libc::sigset_t {
    let mut all = MaybeUninit::uninit();
    let mut old = MaybeUninit::uninit();
    // SAFETY: sigfillset initialises `all`, pthread_sigmask initialises `old`.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
        old.assume_init()
    }
}

fn restore_signals(old: &libc::sigset_t) {
    // SAFETY: `old` is an initialised set.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, old, ptr::null_mut());
    }
}
