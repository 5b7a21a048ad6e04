//! The person's settings in `config.toml`.

use std::io;
use std::path::PathBuf;

use airlock_model::Kind;
use serde::{Deserialize, Serialize};

use crate::{Engine, ErrorKind};

/// All settings. What is absent has its built-in value.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// What holds for commands that do not say otherwise.
    #[serde(default)]
    pub default: Defaults,
}

/// Values of flags that are not given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    /// `--kind` of `spaces create`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
}

/// Why settings could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read or written.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is not what it should be.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line.
        reason: String,
    },
    /// No such setting.
    #[error("there is no setting {key:?}")]
    UnknownKey {
        /// What was given.
        key: String,
    },
    /// The setting cannot have this value.
    #[error("{key}: {reason}")]
    Value {
        /// The setting.
        key: &'static str,
        /// Why not.
        reason: String,
    },
}

impl ConfigError {
    /// What a caller can act on.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::File { source, .. } => crate::error::io_kind(source),
            Self::Damaged { .. } => ErrorKind::Failure,
            Self::UnknownKey { .. } | Self::Value { .. } => ErrorKind::Usage,
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::File { .. } => "set AIRLOCK_HOME to a folder of your own".to_owned(),
            Self::Damaged { .. } => "mend or remove the file".to_owned(),
            Self::UnknownKey { .. } | Self::Value { .. } => {
                "`airlock config list` shows all settings".to_owned()
            }
        }
    }
}

/// A setting that can be read and changed by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    DefaultKind,
}

impl Key {
    const ALL: [Self; 1] = [Self::DefaultKind];

    const fn as_str(self) -> &'static str {
        match self {
            Self::DefaultKind => "default.kind",
        }
    }

    fn named(key: &str) -> Result<Self, ConfigError> {
        Self::ALL
            .into_iter()
            .find(|known| known.as_str() == key)
            .ok_or_else(|| ConfigError::UnknownKey {
                key: key.to_owned(),
            })
    }

    /// The value in force.
    fn get(self, settings: &Settings) -> String {
        match self {
            Self::DefaultKind => settings.default.kind.unwrap_or(Kind::Auto).to_string(),
        }
    }

    fn set(self, settings: &mut Settings, value: &str) -> Result<(), ConfigError> {
        match self {
            Self::DefaultKind => {
                let kind = value
                    .parse()
                    .map_err(
                        |error: airlock_model::space::UnknownWord| ConfigError::Value {
                            key: self.as_str(),
                            reason: error.to_string(),
                        },
                    )?;
                settings.default.kind = Some(kind);
            }
        }
        Ok(())
    }
}

impl Engine {
    /// All settings.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let path = self.home().config();
        let text = match fs_err::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => {
                return Err(ConfigError::File {
                    what: "read",
                    path,
                    source,
                });
            }
        };
        toml::from_str(&text).map_err(|error| ConfigError::Damaged {
            path,
            reason: error.to_string().trim().replace('\n', " "),
        })
    }

    /// Every setting's name and the value in force.
    pub fn list_settings(&self) -> Result<Vec<(&'static str, String)>, ConfigError> {
        let settings = self.settings()?;
        let all = Key::ALL.into_iter();
        Ok(all.map(|key| (key.as_str(), key.get(&settings))).collect())
    }

    /// The value in force of the setting `key`.
    pub fn get_setting(&self, key: &str) -> Result<String, ConfigError> {
        Ok(Key::named(key)?.get(&self.settings()?))
    }

    /// Changes the setting `key`. The file is replaced whole, or not at all.
    pub fn set_setting(&self, key: &str, value: &str) -> Result<(), ConfigError> {
        let key = Key::named(key)?;
        let mut settings = self.settings()?;
        key.set(&mut settings, value)?;
        let path = self.home().config();
        let text = toml::to_string(&settings).map_err(|error| ConfigError::Value {
            key: key.as_str(),
            reason: error.to_string(),
        })?;
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(self.home().root())?;
            io::Write::write_all(&mut file, text.as_bytes())?;
            file.persist(&path)?;
            Ok(())
        };
        write().map_err(|source: io::Error| ConfigError::File {
            what: "write",
            path: path.clone(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine() -> (tempfile::TempDir, Engine) {
        let home = tempfile::tempdir().unwrap();
        let engine = Engine::open(home.path()).unwrap();
        (home, engine)
    }

    #[test]
    fn a_setting_is_kept() {
        let (_home, engine) = engine();
        assert_eq!(engine.get_setting("default.kind").unwrap(), "auto");
        engine.set_setting("default.kind", "container").unwrap();
        assert_eq!(
            engine.list_settings().unwrap(),
            [("default.kind", "container".to_owned())]
        );
        let text = fs_err::read_to_string(engine.home().config()).unwrap();
        assert_eq!(text, "[default]\nkind = \"container\"\n");
    }

    #[test]
    fn nonsense_changes_nothing() {
        let (_home, engine) = engine();
        let unknown = engine.set_setting("default.king", "vm").unwrap_err();
        assert_eq!(unknown.to_string(), "there is no setting \"default.king\"");
        let value = engine.set_setting("default.kind", "pod").unwrap_err();
        assert!(value.to_string().contains("auto, vm, container"), "{value}");
        assert!(!engine.home().config().exists());
        fs_err::write(engine.home().config(), "[default]\nkind = 7\n").unwrap();
        let damaged = engine.settings().unwrap_err();
        assert!(damaged.to_string().contains("config.toml is damaged"));
        fs_err::write(engine.home().config(), "[defaults]\n").unwrap();
        assert!(engine.settings().is_err());
    }
}
