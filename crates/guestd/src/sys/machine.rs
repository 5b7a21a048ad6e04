//! Calls that only the owner of a machine makes.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Bytes of randomness credited in one call.
const MAX_SEED_BYTES: usize = 64;

/// `struct rand_pool_info` with room for a seed, from `linux/random.h`.
#[repr(C)]
struct RandPoolInfo {
    entropy_bits: c_int,
    bytes: c_int,
    seed: [u8; MAX_SEED_BYTES],
}

/// `_IOW('R', 3, int[2])`
const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
/// `_IOW('f', 16, __u64)`
const EXT4_IOC_RESIZE_FS: libc::Ioctl = 0x4008_6610;

/// Adds a secret seed to the kernel's pool and counts it as fully random.
pub(crate) fn credit_entropy(pool: BorrowedFd<'_>, seed: &[u8]) -> io::Result<()> {
    let seed = &seed[..seed.len().min(MAX_SEED_BYTES)];
    let bytes = c_int::try_from(seed.len()).unwrap_or(0);
    let mut info = RandPoolInfo {
        entropy_bits: 8 * bytes,
        bytes,
        seed: [0; MAX_SEED_BYTES],
    };
    info.seed[..seed.len()].copy_from_slice(seed);
    let pointer: *const RandPoolInfo = &raw const info;
    // SAFETY: the kernel reads a header and `bytes` bytes behind it, all inside `info`.
    check(unsafe { libc::ioctl(pool.as_raw_fd(), RNDADDENTROPY, pointer.cast::<c_void>()) })
}

/// Grows a mounted ext4 file system to `blocks` blocks; `mount_point` is any open file of it.
pub(crate) fn resize_ext4(mount_point: BorrowedFd<'_>, blocks: u64) -> io::Result<()> {
    let pointer: *const u64 = &raw const blocks;
    // SAFETY: the kernel reads eight bytes, which `blocks` is.
    check(unsafe {
        libc::ioctl(
            mount_point.as_raw_fd(),
            EXT4_IOC_RESIZE_FS,
            pointer.cast::<c_void>(),
        )
    })
}

/// Sends a signal to every process but the first one and the caller.
pub(crate) fn signal_everyone(signal: c_int) -> io::Result<()> {
    // SAFETY: passes two integers.
    check(unsafe { libc::kill(-1, signal) })
}

fn check(result: c_int) -> io::Result<()> {
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
