//! The few system calls that have no safe form.
#![expect(
    unsafe_code,
    reason = "fork, unshare, TAP interfaces and descriptors named by number"
)]

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

/// `IFF_TAP | IFF_NO_PI`: Ethernet frames and nothing before them (`linux/if_tun.h`).
const TAP_WITHOUT_HEADER: i16 = 0x0002 | 0x1000;
/// `_IOW('T', 202, int)`
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
/// Longest name of an interface, with its closing zero.
const NAME_BYTES: usize = 16;

/// The start of `struct ifreq` (netdevice(7)), at its full size.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_BYTES],
    flags: i16,
    rest: [u8; 22],
}

/// Takes over a descriptor that the parent left open under `number`.
pub(crate) fn inherited(number: RawFd) -> OwnedFd {
    // SAFETY: the parent opened it for this program and named it once in the plan; each is taken
    // over once, at the start.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Moves this process into new namespaces; for children, in the case of pids.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the descriptor table is not among the flags that this program uses.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Which of the two a process is after [`fork`].
pub(crate) enum Forked {
    Parent(Pid),
    Child,
}

/// Makes a copy of this process, which must have one thread.
pub(crate) fn fork() -> io::Result<Forked> {
    // SAFETY: the minder starts no thread, so the copy holds no lock of one that it lacks.
    let pid = unsafe { libc::fork() };
    match Pid::from_raw(pid) {
        _ if pid < 0 => Err(io::Error::last_os_error()),
        Some(child) => Ok(Forked::Parent(child)),
        None => Ok(Forked::Child),
    }
}

/// Puts `fd` under `number`, for a child to inherit. Returns the owner of that number.
pub(crate) fn place(fd: &OwnedFd, number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: passes two integers. What was open under the number is nobody's: the caller moved
    // every descriptor of this process above it.
    if unsafe { libc::dup2(fd.as_raw_fd(), number) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above opened it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Makes `device`, an open `/dev/net/tun`, the TAP interface `name` of this network namespace.
pub(crate) fn make_tap(device: &OwnedFd, name: &str) -> io::Result<()> {
    let mut request = InterfaceRequest {
        name: [0; NAME_BYTES],
        flags: TAP_WITHOUT_HEADER,
        rest: [0; 22],
    };
    // The last byte stays zero.
    for (to, from) in request.name[..NAME_BYTES - 1].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    let pointer: *mut InterfaceRequest = &raw mut request;
    // SAFETY: the kernel reads and writes one `struct ifreq`, which is what the pointer leads to.
    if unsafe { libc::ioctl(device.as_raw_fd(), TUNSETIFF, pointer) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
