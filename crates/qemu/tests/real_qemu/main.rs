//! The crate against the real QEMU and passt of this host.
//!
//! What needs a kernel takes it from `AIRLOCK_TEST_KERNEL` (its modules in
//! `../lib/modules/<release>` beside it, as a kernel package unpacks) and a static busybox from
//! `/bin/busybox`. A test that lacks its part says so and passes.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test's helpers may panic and say why a test was skipped"
)]

mod accel;
mod frames;
mod guest;
mod initramfs;
mod vm;

use airlock_qemu::Qemu;
use airlock_qemu::argv::Arch;
use airlock_qemu::discover::{DiscoverError, find_qemu};

/// The host's QEMU, or `None` with a printed reason.
async fn qemu() -> Option<Qemu> {
    let Some(arch) = Arch::host() else {
        eprintln!("skipped: no support for this processor");
        return None;
    };
    match find_qemu(arch).await {
        Ok(qemu) => Some(qemu),
        Err(error @ DiscoverError::NoQemu { .. }) => {
            eprintln!("skipped: {error}; {}", error.hint());
            None
        }
        Err(error) => panic!("{error}"),
    }
}
