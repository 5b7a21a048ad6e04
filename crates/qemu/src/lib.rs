//! QEMU command lines and QMP. Knows nothing of Spaces.
//!
//! The way of one machine: [`discover`] finds the program, [`accel`] says what executes the
//! guest's instructions, [`overlay`] makes its disk, [`argv`] writes the command line,
//! [`airlock_process`] runs it, [`qmp`] talks to it.
//!
//! QEMU runs as another user without access to the caller's folders, so every resource reaches
//! it as an inherited descriptor ([`airlock_process::InheritedFds`]) and no path appears in its
//! command line.

pub mod accel;
pub mod argv;
pub mod discover;
pub mod overlay;
pub mod qmp;

pub use accel::{Backend, ProbeContext, Resolved};
pub use argv::{Arch, VmConfig};
pub use discover::Qemu;
pub use qmp::Qmp;
