//! guestd as the first process of a machine.
//!
//! The first process stays small: one thread, no async runtime, no socket. It makes the machine
//! usable, starts the serving process, starts it again when it dies, and buries orphans. What it
//! learns (token, lane) reaches the serving process through descriptors alone.
//!
//! ```text
//! boot: mounts -> modules -> lane -> settings -> clock, entropy -> root disk -> network
//!   -> supervise: serve <-> restart -> power off | reboot
//! ```

mod container;
mod disk;
mod identity;
mod kernel;
mod root;
mod settings;
mod supervise;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use airlock_lane::boot::{BootConfigError, read_boot_config};
use airlock_lane::{LANE_SERIAL, LaneDevice, OpenError};
use airlock_model::BootConfig;
use airlock_netlink::{Interface, NetworkError};
use airlock_wire::GUESTD_PORT;
use rustix::io::Errno;

use crate::console::{Causes, say};
pub use container::run as run_container;
use root::RootError;
use settings::Settings;
pub use settings::serve_child;

/// Serial number of the disk that holds the root file system.
const ROOT_SERIAL: &str = "airlock-root";

/// Why the machine did not come up.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// A kernel file system could not be mounted.
    #[error("cannot mount {kind} on {}", target.display())]
    Mount {
        /// The kind of file system.
        kind: &'static str,
        /// Where it belongs.
        target: PathBuf,
        /// What the system said.
        #[source]
        source: Errno,
    },
    /// There is no lane disk, or it cannot be used.
    #[error("no lane")]
    Lane(#[from] OpenError),
    /// The lane carries no usable configuration.
    #[error("no boot configuration")]
    Config(#[from] BootConfigError),
    /// The root disk cannot be used.
    #[error("the root disk cannot be used")]
    Root(#[from] RootError),
    /// Nothing would reach guestd.
    #[error("the control interface has no address")]
    NoControlAddress,
    /// The network cannot be set up.
    #[error("the network cannot be set up")]
    Network(#[from] NetworkError),
    /// The settings cannot be handed to the serving process.
    #[error("cannot pass the settings on")]
    Settings(#[source] io::Error),
}

/// Boots the machine and minds it until it goes off. Does not return while the machine runs.
pub fn run() -> ExitCode {
    let ending = match boot() {
        Ok(settings) => supervise::run(&settings),
        Err(error) => {
            say(format_args!("boot failed: {}", Causes(&error)));
            supervise::MachineEnd::PowerOff
        }
    };
    supervise::end_machine(ending)
}

fn boot() -> Result<Settings, BootError> {
    kernel::mount_all()?;
    kernel::load_modules(Path::new("/lib/modules/load-order"));
    let lane_disk = disk::find(LANE_SERIAL).ok_or(OpenError::NotFound {
        serial: LANE_SERIAL.to_owned(),
    })?;
    let config = read_boot_config(&LaneDevice::open(&lane_disk)?)?;
    kernel::set_clock(config.now_unix_ns);
    kernel::seed_random(&config.entropy);
    let on_disk = match disk::find(ROOT_SERIAL) {
        Some(disk) => {
            root::switch_to(&disk)?;
            true
        }
        None => false,
    };
    identity::write(&config, on_disk);
    airlock_netlink::set_up_loopback()?;
    for net in [config.control.as_ref(), config.network.as_ref()]
        .into_iter()
        .flatten()
    {
        Interface::with_mac(&net.mac)?.set(net)?;
    }
    let lane = settings::open_lane(&lane_disk).map_err(BootError::Settings)?;
    Settings::of_machine(&config, listen_address(&config)?, lane).map_err(BootError::Settings)
}

/// guestd listens where the control connection comes in, and nowhere else.
fn listen_address(config: &BootConfig) -> Result<SocketAddr, BootError> {
    let first = config
        .control
        .as_ref()
        .and_then(|net| net.addresses.first())
        .ok_or(BootError::NoControlAddress)?;
    Ok(SocketAddr::new(
        airlock_netlink::parse_address(first)?.ip,
        GUESTD_PORT,
    ))
}
