/* Tries system calls by number and prints "name errno" for each; 0 stands for success, and a
 * negative number for the signal that ended the attempt. Every attempt has a process of its own,
 * and arguments that do no harm if it should succeed. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct call { const char *name; long number; };

static const struct call blocked[] = {
#include "blocked.h"
    {0, 0},
};

static void attempt(const char *kind, const char *name, long number, long a, long b, long c)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        long result = syscall(number, a, b, c, 0L, 0L, 0L);
        _exit(result < 0 ? errno : 0);
    }
    waitpid(child, &status, 0);
    printf("%s/%s %d\n", kind, name, WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
}

#ifdef __x86_64__
static void attempt_i386(const char *name, long number, long a, long b, long c)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        long result;
        __asm__ volatile("int $0x80"
                         : "=a"(result)
                         : "a"(number), "b"(a), "c"(b), "d"(c)
                         : "memory");
        _exit(result < 0 ? (int)-result : 0);
    }
    waitpid(child, &status, 0);
    printf("i386/%s %d\n", name, WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
}
#endif

#define CLONE_FLAG(name, flag) attempt("clone", name, SYS_clone, (flag) | SIGCHLD, 0, 0)
#define FAMILY(name, family) attempt("socket", name, SYS_socket, (family), 2, 0)
#define DOMAIN(name, domain) attempt("personality", name, SYS_personality, (domain), 0, 0)

int main(void)
{
    for (const struct call *call = blocked; call->name; call++)
        attempt("blocked", call->name, call->number, 0, 0, 0);

    CLONE_FLAG("NEWNS", 0x00020000L);
    CLONE_FLAG("NEWCGROUP", 0x02000000L);
    CLONE_FLAG("NEWUTS", 0x04000000L);
    CLONE_FLAG("NEWIPC", 0x08000000L);
    CLONE_FLAG("NEWUSER", 0x10000000L);
    CLONE_FLAG("NEWPID", 0x20000000L);
    CLONE_FLAG("NEWNET", 0x40000000L);
    CLONE_FLAG("NEWUSER-and-NEWNS", 0x10020000L);
    CLONE_FLAG("all", 0x7E020000L);
    CLONE_FLAG("plain", 0L);
    attempt("clone3", "any", SYS_clone3, 0, 0, 0);

    FAMILY("UNIX", 1L);
    FAMILY("INET", 2L);
    FAMILY("INET6", 10L);
    FAMILY("CAN", 29L);
    FAMILY("ALG", 38L);
    FAMILY("VSOCK", 40L);
    /* The kernel uses the lower half: VSOCK again. */
    FAMILY("VSOCK-in-disguise", (1L << 32) | 40L);
    attempt("socket", "NETLINK", SYS_socket, 16, 3, 0);

    /* Families that the filter allows, and a capability that is missing. */
    attempt("raw", "icmp", SYS_socket, 2, 3, 1);
    attempt("raw", "packet", SYS_socket, 17, 3, 0);

    DOMAIN("query", 0xFFFFFFFFL);
    DOMAIN("linux", 0L);
    DOMAIN("linux32", 8L);
    DOMAIN("no-randomize", 0x40000L);
    DOMAIN("bsd", 6L);
    DOMAIN("read-implies-exec", 0x400000L);

    attempt("allowed", "memfd_create", SYS_memfd_create, (long)"name", 0, 0);
    attempt("allowed", "getrandom", SYS_getrandom, 0, 0, 0);
    attempt("allowed", "close_range", SYS_close_range, 100, 200, 0);
    attempt("allowed", "pidfd_open", SYS_pidfd_open, getpid(), 0, 0);
    attempt("allowed", "membarrier", SYS_membarrier, 0, 0, 0);
    attempt("allowed", "inotify_init1", SYS_inotify_init1, 0, 0, 0);
    attempt("allowed", "epoll_create1", SYS_epoll_create1, 0, 0, 0);
    attempt("allowed", "eventfd2", SYS_eventfd2, 0, 0, 0);
    attempt("allowed", "timerfd_create", SYS_timerfd_create, 0, 0, 0);
    attempt("allowed", "ptrace", SYS_ptrace, 0, 0, 0);
    attempt("allowed", "chroot", SYS_chroot, (long)"/", 0, 0);
    attempt("allowed", "faccessat2", SYS_faccessat2, -100, (long)"/", 0);

    attempt("future", "10000", 10000, 0, 0, 0);

#ifdef __x86_64__
    attempt("x32", "getpid", 0x40000000L | SYS_getpid, 0, 0, 0);
    attempt_i386("getpid", 20, 0, 0, 0);
    attempt_i386("unshare", 310, 0, 0, 0);
    attempt_i386("mount", 21, 0, 0, 0);
    attempt_i386("umount", 22, 0, 0, 0);
    attempt_i386("clone-NEWUSER", 120, 0x10000000L | SIGCHLD, 0, 0);
    attempt_i386("socket-UNIX", 359, 1, 2, 0);
    attempt_i386("socket-VSOCK", 359, 40, 2, 0);
    unsigned *arguments = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    arguments[0] = 38; /* ALG */
    arguments[1] = 2;
    arguments[2] = 0;
    attempt_i386("socketcall-ALG", 102, 1, (long)arguments, 0);
#endif
    return 0;
}
