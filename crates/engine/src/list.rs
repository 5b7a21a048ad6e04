//! Which Spaces there are, and how they fare, told truthfully whoever has died.

use airlock_keeper::protocol::Status;
use airlock_keeper::{StateFileError, read_state};
use airlock_model::{Accel, ImageName, Kind, Network, Runtime, SpaceName, SpaceState};
use serde::Serialize;

use crate::record::Record;
use crate::{Engine, EngineError};

/// One Space, as `spaces ls` and `spaces info` show it. The JSON field names are stable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SpaceInfo {
    /// Its name.
    pub name: SpaceName,
    /// Where it is in its life.
    pub state: SpaceState,
    /// The image it was made from.
    pub image: ImageName,
    /// What it is.
    pub kind: Kind,
    /// Why it is that, where Airlock chose.
    pub kind_reason: Option<String>,
    /// What runs it.
    pub runtime: Runtime,
    /// What executes its instructions, once that was decided.
    pub accel: Option<Accel>,
    /// Why that one.
    pub accel_reason: Option<String>,
    /// What stands between it and the host, and what does not, at its last start.
    pub protection: Vec<String>,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Size of the root file system in GiB.
    pub disk_gb: u64,
    /// What it can reach.
    pub network: Network,
    /// When it was made, RFC 3339.
    pub created_at: String,
    /// When it was last started, RFC 3339.
    pub started_at: Option<String>,
    /// The keeper's pid, while it lives.
    pub pid: Option<u32>,
    /// From the start of the machine to the first healthy answer, at the last start.
    pub boot_ms: Option<u64>,
    /// Why it is in a state that nobody asked for.
    pub detail: Option<String>,
    /// Bytes that its own disk takes on the host.
    pub disk_used_bytes: u64,
    /// Build of the keeper that last ran it.
    pub build: Option<String>,
}

impl Engine {
    /// Every Space, by name. One whose files are damaged is listed as crashed, with the reason.
    pub fn list(&self) -> Result<Vec<SpaceInfo>, EngineError> {
        let folder = self.home.spaces();
        // Fails here rather than showing an empty list.
        fs_err::read_dir(&folder).map_err(EngineError::file("list", &folder))?;
        let mut spaces = Vec::new();
        for name in self.names() {
            match self.info(&name) {
                Ok(info) => spaces.push(info),
                // Deleted since the folder was read.
                Err(EngineError::NoSuchSpace { .. }) => {}
                Err(error) => spaces.push(damaged(name, &error)),
            }
        }
        spaces.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(spaces)
    }

    /// The name of every Space that has a folder.
    pub(crate) fn names(&self) -> impl Iterator<Item = SpaceName> {
        let entries = fs_err::read_dir(self.home.spaces());
        // Folders of Spaces being made or removed have names that no Space can have.
        entries
            .into_iter()
            .flatten()
            .filter_map(|entry| SpaceName::new(entry.ok()?.file_name().into_string().ok()?).ok())
    }

    /// One Space.
    pub fn info(&self, name: &SpaceName) -> Result<SpaceInfo, EngineError> {
        let record = match Record::read(&self.home, name) {
            Err(error @ EngineError::CutShort { .. }) => return Ok(damaged(name.clone(), &error)),
            record => record?,
        };
        let paths = self.home.space(name);
        let (status, damage) = match read_state(&paths.state()) {
            Ok(status) => (status, None),
            // All that is lost is what the keeper last said; the Space itself can start again.
            Err(error @ StateFileError::Damaged { .. }) => (None, Some(error.to_string())),
            Err(StateFileError::Io(source)) => {
                return Err(EngineError::file("read", paths.state())(source));
            }
        };
        let (state, pid, detail) = match damage {
            Some(damage) => (SpaceState::Crashed, None, Some(damage)),
            None => judge(status.as_ref()),
        };
        let spec = record.spec;
        let started = status
            .as_ref()
            .map(|status| rfc3339(status.started_at_unix_ns));
        Ok(SpaceInfo {
            name: spec.name,
            state,
            image: spec.image,
            // Spaces of older versions have no decided kind; all of them are VMs.
            kind: match spec.kind {
                Kind::Auto | Kind::Vm => Kind::Vm,
                Kind::Container => Kind::Container,
            },
            kind_reason: record.kind_reason,
            runtime: match (spec.runtime, status.as_ref()) {
                (Runtime::Auto, Some(status)) => status.runtime,
                (Runtime::Auto, None) => Runtime::Qemu,
                (runtime, _) => runtime,
            },
            accel: status.as_ref().and_then(|status| status.accel),
            accel_reason: status
                .as_ref()
                .and_then(|status| status.accel_reason.clone()),
            protection: status
                .as_ref()
                .map(|status| status.protection.clone())
                .unwrap_or_default(),
            cpus: spec.cpus,
            memory_mb: spec.memory_mb,
            disk_gb: spec.disk_gb,
            network: spec.network,
            created_at: rfc3339(record.created_at_unix_ns),
            started_at: started,
            pid,
            boot_ms: status.as_ref().and_then(|status| status.boot_ms),
            detail,
            disk_used_bytes: disk_used(&paths.overlay()) + tree_used(&paths.upper()),
            build: status.map(|status| status.build),
        })
    }
}

/// The state, from what the keeper last wrote and whether it still lives.
fn judge(status: Option<&Status>) -> (SpaceState, Option<u32>, Option<String>) {
    let Some(status) = status else {
        let detail = "it was never started, or its creation was cut short".to_owned();
        return (SpaceState::Stopped, None, Some(detail));
    };
    let alive = status.keeper.is_alive();
    let pid = alive.then_some(status.keeper.pid);
    match status.state {
        SpaceState::Stopped | SpaceState::Crashed => (status.state, pid, status.detail.clone()),
        SpaceState::Creating
        | SpaceState::Starting
        | SpaceState::Running
        | SpaceState::Stopping => {
            if alive {
                (status.state, pid, status.detail.clone())
            } else {
                let detail = format!("its keeper (pid {}) died", status.keeper.pid);
                (SpaceState::Crashed, None, Some(detail))
            }
        }
    }
}

fn damaged(name: SpaceName, error: &EngineError) -> SpaceInfo {
    // The image's name is unknown; a name is needed to show the row at all.
    let image = ImageName::new("unknown").unwrap_or_else(|_| unreachable!("a legal name"));
    let spec = airlock_model::SpaceSpec::new(name, image);
    SpaceInfo {
        name: spec.name,
        state: SpaceState::Crashed,
        image: spec.image,
        kind: Kind::Vm,
        kind_reason: None,
        runtime: Runtime::Qemu,
        accel: None,
        accel_reason: None,
        protection: Vec::new(),
        cpus: 0,
        memory_mb: 0,
        disk_gb: 0,
        network: spec.network,
        created_at: String::new(),
        started_at: None,
        pid: None,
        boot_ms: None,
        detail: Some(error.to_string()),
        disk_used_bytes: 0,
        build: None,
    }
}

fn disk_used(path: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    // A unit of st_blocks is 512 bytes on Linux, whatever the file system.
    fs_err::metadata(path)
        .map(|metadata| metadata.blocks() * 512)
        .unwrap_or_default()
}

/// Bytes that the files below `folder` take, as far as the caller may look.
fn tree_used(folder: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
            // Not followed: the Space makes these links.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            bytes += metadata.blocks() * 512;
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    bytes
}

fn rfc3339(unix_ns: u64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(unix_ns))
        .map(|timestamp| format!("{timestamp:.3}"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use airlock_model::SpaceSpec;

    use super::*;

    #[test]
    fn a_damaged_state_file_is_a_crash_and_no_dead_end() {
        let home = tempfile::tempdir().unwrap();
        let engine = Engine::open(home.path()).unwrap();
        let name = SpaceName::new("s").unwrap();
        let paths = engine.home().space(&name);
        fs_err::create_dir(paths.dir()).unwrap();
        let record = Record {
            spec: SpaceSpec::new(name.clone(), ImageName::new("tiny").unwrap()),
            kind_reason: None,
            container: None,
            machine_id: "0".repeat(32),
            created_at_unix_ns: 1,
        };
        record.write(&paths.spec()).unwrap();
        for garbage in ["", "{", "[]", r#"{"state":"running"}"#] {
            fs_err::write(paths.state(), garbage).unwrap();
            let info = engine.info(&name).unwrap();
            assert_eq!((info.state, info.pid), (SpaceState::Crashed, None));
            assert_eq!(info.image.as_str(), "tiny");
            let detail = info.detail.unwrap();
            assert_eq!(detail.matches("state.json").count(), 1, "{detail}");
        }
    }
}
