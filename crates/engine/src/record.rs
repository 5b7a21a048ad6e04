//! `spec.json`: what a Space is, for its whole life.

use std::io;
use std::path::PathBuf;

use airlock_model::{HomePaths, SpaceName, SpacePaths, SpaceSpec};
use airlock_oci::Ids;
use serde::{Deserialize, Serialize};

use crate::EngineError;

/// The content of `spec.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What was asked for, with its kind and runtime decided.
    pub(crate) spec: SpaceSpec,
    /// Why it is of that kind.
    #[serde(default)]
    pub(crate) kind_reason: Option<String>,
    /// What a container Space is based on.
    #[serde(default)]
    pub(crate) container: Option<ContainerBase>,
    /// 32 hexadecimal digits.
    pub(crate) machine_id: String,
    /// When it was made, nanoseconds since the Unix epoch.
    pub(crate) created_at_unix_ns: u64,
}

/// What a container Space is based on, for its whole life: what it changed makes sense above this
/// very folder and with these very ids alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerBase {
    /// The image's unpacked root folder.
    pub(crate) tree: PathBuf,
    /// The ids that own its files.
    pub(crate) ids: Ids,
    /// Environment that the image asks for.
    pub(crate) env: Vec<(String, String)>,
}

impl Record {
    /// Reads the record of `name`.
    pub(crate) fn read(home: &HomePaths, name: &SpaceName) -> Result<Self, EngineError> {
        let path = home.space(name).spec();
        let text = match fs_err::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if home.space(name).dir().is_dir() {
                    return Err(EngineError::CutShort { name: name.clone() });
                }
                return Err(EngineError::NoSuchSpace { name: name.clone() });
            }
            Err(source) => {
                return Err(EngineError::File {
                    what: "read",
                    path,
                    source,
                });
            }
        };
        let record: Self = serde_json::from_slice(&text).map_err(|error| EngineError::Damaged {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        if record.spec.name != *name {
            let reason = format!("it describes the Space {}", record.spec.name);
            return Err(EngineError::Damaged { path, reason });
        }
        Ok(record)
    }

    /// Writes the record into the folder of `paths`, which nobody else uses yet.
    pub(crate) fn write(&self, paths: &std::path::Path) -> io::Result<()> {
        fs_err::write(paths, serde_json::to_vec_pretty(self)?)
    }
}

/// The Space's own name for its image's root disk: a hard link, so that the disk lives on when
/// the image is built anew or removed.
pub(crate) fn base_disk(paths: &SpacePaths) -> std::path::PathBuf {
    paths.dir().join("base.ext4")
}
