//! What the Space is, and the few facts that `Init` changes.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::time::Duration;

use airlock_model::size::{MIB, NETWORK_CHUNK_BYTES};
use airlock_wire::MAX_MESSAGE_BYTES;
use airlock_wire::cua::v1::{
    Architecture, DisplayServer, Feature, GetCapabilitiesResponse, Limits, OperatingSystem,
    OsFamily, Runtime,
};
use rustix::time::{ClockId, Timespec, clock_settime};

use crate::convert::timestamp;
use crate::filesystem::MAX_CHUNK_BYTES;
use crate::process::DEFAULT_SCROLLBACK_BYTES;
use crate::server::Role;
use crate::small_file;
use crate::state::Shared;

/// The build that answers.
pub const BUILD_ID: &str = match option_env!("AIRLOCK_BUILD_ID") {
    Some(id) => id,
    None => env!("CARGO_PKG_VERSION"),
};

/// Version of the contract, and its revision.
const PROTOCOL: (u32, u32) = (1, 13);

pub(super) fn capabilities(shared: &Shared) -> GetCapabilitiesResponse {
    let uname = rustix::system::uname();
    let (runtime, runtime_detail) = match shared.role {
        Role::Machine => (Runtime::Qemu, "airlock"),
        Role::Container => (Runtime::Container, "airlock"),
        Role::Plain => (Runtime::Unknown, "plain process"),
    };
    GetCapabilitiesResponse {
        version: BUILD_ID.to_owned(),
        protocol_version: PROTOCOL.0,
        protocol_revision: PROTOCOL.1,
        os: Some(operating_system(&uname.release().to_string_lossy())),
        runtime: runtime.into(),
        runtime_detail: runtime_detail.to_owned(),
        arch: architecture().into(),
        display_server: DisplayServer::None.into(),
        displays: Vec::new(),
        features: features(shared),
        hostname: uname.nodename().to_string_lossy().into_owned(),
        initialized: shared.defaults().initialized || shared.role != Role::Plain,
        boot_time: boot_time(&fs::read_to_string("/proc/stat").unwrap_or_default()).map(timestamp),
        side_channels: None,
        limits: Some(Limits {
            max_chunk_bytes: MAX_CHUNK_BYTES as u32,
            max_message_bytes: MAX_MESSAGE_BYTES as u32,
            preferred_chunk_bytes: NETWORK_CHUNK_BYTES as u32,
            default_scrollback_bytes: DEFAULT_SCROLLBACK_BYTES as u64,
        }),
        machine_seal_public_key: Vec::new(),
        // The contract's own bulk disk does not exist here; without it clients use the network.
        bulk: None,
    }
}

/// Honest: what is false here answers with a fault that names it.
fn features(shared: &Shared) -> Vec<Feature> {
    let root = rustix::process::geteuid().is_root();
    let mode = if root { "root" } else { "none" };
    let feature = |name: &str, supported| Feature {
        name: name.to_owned(),
        supported,
        limitation: String::new(),
        attributes: HashMap::new(),
    };
    let mut run_as = feature("process.run_as", root);
    run_as.attributes.insert("mode".to_owned(), mode.to_owned());
    vec![
        feature("pty", true),
        run_as,
        feature("airlock.lane", shared.has_lane),
        feature("fs_watch", false),
        feature("fs.run_as", false),
        feature("fs.xattr", false),
        feature("files.multipart", false),
        feature("tunnel.forward", false),
        feature("hotspot", false),
        feature("volume", false),
        feature("driver", false),
        feature("relay_attach", false),
    ]
}

fn operating_system(kernel: &str) -> OperatingSystem {
    let release = small_file::read("/etc/os-release")
        .or_else(|_| small_file::read("/usr/lib/os-release"))
        .unwrap_or_default();
    let release = String::from_utf8_lossy(&release);
    let field = |key: &str| os_release_field(&release, key);
    OperatingSystem {
        family: OsFamily::Linux.into(),
        name: field("ID").unwrap_or_else(|| "linux".to_owned()),
        version: field("VERSION_ID").unwrap_or_default(),
        kernel: kernel.to_owned(),
        pretty_name: field("PRETTY_NAME").unwrap_or_else(|| "Linux".to_owned()),
    }
}

fn os_release_field(release: &str, key: &str) -> Option<String> {
    let value = release
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
    Some(value.trim_matches(['"', '\'']).to_owned())
}

fn architecture() -> Architecture {
    if cfg!(target_arch = "aarch64") {
        Architecture::Arm64
    } else {
        Architecture::X8664
    }
}

fn boot_time(stat: &str) -> Option<Duration> {
    let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(Duration::from_secs(seconds.trim().parse().ok()?))
}

/// Stirs `entropy` into the kernel's pool. It cannot do harm, so a refusal does not matter.
pub(crate) fn add_entropy(entropy: &[u8]) {
    if entropy.is_empty() {
        return;
    }
    let stirred = fs::OpenOptions::new()
        .write(true)
        .open("/dev/urandom")
        .and_then(|mut pool| pool.write_all(entropy));
    if let Err(error) = stirred {
        crate::console::say(format_args!("the entropy sent was not used: {error}"));
    }
}

/// Sets the clock to `since_epoch`.
pub(crate) fn set_clock(since_epoch: Duration) -> io::Result<()> {
    let time = Timespec::try_from(since_epoch).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(clock_settime(ClockId::Realtime, time)?)
}

const _: () = assert!(MAX_CHUNK_BYTES as u64 == 4 * MIB);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn os_release_values_lose_their_quotes() {
        let release = "PRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian\nVERSION_ID='12'\n";
        let field = |key| os_release_field(release, key);
        assert_eq!(field("PRETTY_NAME").unwrap(), "Debian GNU/Linux 12");
        assert_eq!(field("ID").unwrap(), "debian");
        assert_eq!(field("VERSION_ID").unwrap(), "12");
        assert_eq!(field("VERSION"), None);
    }

    #[test]
    fn boot_time_is_read_from_the_kernel() {
        assert_eq!(
            boot_time("cpu 1\nbtime 17\n"),
            Some(Duration::from_secs(17))
        );
        assert_eq!(boot_time(""), None);
    }
}
