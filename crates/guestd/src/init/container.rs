//! guestd as the first process of a container.
//!
//! The runtime made mounts, host name and network before this process started, and nothing in the
//! container may change them. What is left is what makes the Space itself, and supervision.

use std::fs::File;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;
use std::process::ExitCode;

use airlock_lane::LaneDevice;
use airlock_lane::boot::read_boot_config;

use super::settings::Settings;
use super::{BootError, identity, supervise};
use crate::console::{Causes, say};
use crate::sys::inherited::{adopt, close_from};

/// The lane's memory.
const LANE_FD: RawFd = 3;
/// The socket to listen on.
const LISTENER_FD: RawFd = 4;
/// The first descriptor that no container is meant to have.
///
/// From here on lies guestd's own program, and whatever a runtime left open: one release of runc
/// leaves the host's cgroup folder, from which the whole host could be reached.
const FIRST_STRAY_FD: u32 = 5;

/// Sets the container up and minds it until it ends.
pub fn run() -> ExitCode {
    if let Err(error) = close_from(FIRST_STRAY_FD) {
        say(format_args!(
            "descriptors of the runtime stay open: {error}"
        ));
        return ExitCode::FAILURE;
    }
    match boot() {
        Ok(settings) => {
            let _ = supervise::run(&settings);
            supervise::end_container()
        }
        Err(error) => {
            say(format_args!("boot failed: {}", Causes(&error)));
            ExitCode::FAILURE
        }
    }
}

fn boot() -> Result<Settings, BootError> {
    let (lane, listener) = inherited().map_err(BootError::Settings)?;
    let twin = lane.try_clone().map_err(BootError::Settings)?;
    let device = LaneDevice::adopt(File::from(twin), Path::new("the inherited lane"))?;
    let config = read_boot_config(&device)?;
    identity::write_files(&config);
    Settings::of_container(&config, listener, lane).map_err(BootError::Settings)
}

fn inherited() -> std::io::Result<(OwnedFd, OwnedFd)> {
    Ok((adopt(LANE_FD)?, adopt(LISTENER_FD)?))
}
