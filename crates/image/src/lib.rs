//! Images of Spaces: kernel, initramfs and root file system, and the catalog that keeps them.
//!
//! Two images can be built. `tiny` is an initramfs with guestd and busybox: no root rights and a
//! few seconds. `linux` is a small Debian or Ubuntu on ext4, reached by way of an initramfs that
//! holds nothing but guestd and modules. Everything comes from the host distribution's packages,
//! fetched with its own apt and unpacked, never installed.
//!
//! All calls block; async callers use `spawn_blocking`. A cancelled build stops its child
//! processes and leaves nothing but its log.

mod apt;
mod builder;
mod busybox;
mod catalog;
mod command;
mod cpio;
mod error;
pub mod guestd_bin;
pub mod host;
mod import;
mod initramfs;
mod job;
mod kernel;
mod manifest;
mod modules;
mod part;
mod progress;
mod rootfs;
mod sources;
mod tree;
mod vmlinux;
mod workdir;

pub use catalog::{Catalog, Image, ImageInfo, OnProgress};
pub use command::{CommandError, Tail};
pub use error::{BuildError, ImageError};
pub use guestd_bin::{GuestdBin, GuestdError};
pub use host::{Arch, MissingTools, PackageNeed, Purpose, install_plan};
pub use import::{ImageSource, ImportError, SourceError};
pub use initramfs::{BUSYBOX, LOAD_ORDER};
pub use part::Freshness;
pub use progress::{Phase, Progress};
pub use tree::{MAP_IDS, Owners, Tree, TreeError};
