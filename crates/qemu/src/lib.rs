//! QEMU command lines, QMP and process handling. Knows nothing of Spaces.
//!
//! The way of one machine: [`discover`] finds the program, [`accel`] says what executes the
//! guest's instructions, [`overlay`] makes its disk, [`argv`] writes the command line,
//! [`process`] runs it, [`qmp`] talks to it. [`passt`] and [`wall`] make its network.
//!
//! QEMU runs as another user without access to the caller's folders, so every resource reaches
//! it as an inherited descriptor ([`process::InheritedFds`]) and no path appears in its
//! command line.

pub mod accel;
pub mod argv;
pub mod discover;
pub mod overlay;
pub mod passt;
pub mod process;
pub mod qmp;
pub mod wall;

pub use accel::{Backend, ProbeContext, Resolved};
pub use argv::{Arch, VmConfig};
pub use discover::Qemu;
pub use process::{InheritedFds, RunAs, VmProcess};
pub use qmp::Qmp;
