//! The OCI runtimes of this host.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use airlock_model::Runtime as Wanted;
use airlock_process::FindError;

/// Environment variable that names the OCI runtime's program to use.
pub const RUNTIME_VARIABLE: &str = "AIRLOCK_OCI_RUNTIME";

/// Those that are tried without being asked for, the best known first. gVisor is not among them:
/// it is another trade of speed for isolation, for a person to choose.
const AUTOMATIC: [Wanted; 3] = [Wanted::Runc, Wanted::Crun, Wanted::Youki];

/// A runtime of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    /// Which one.
    pub name: Wanted,
    /// Its program.
    pub path: PathBuf,
    /// What it says of its version.
    pub version: String,
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// Why there is no runtime.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// None is installed.
    #[error("no OCI runtime is installed (runc, crun, youki)")]
    NoneInstalled,
    /// The one asked for is not there.
    #[error(transparent)]
    Find(#[from] FindError),
    /// What was asked for runs no containers.
    #[error("{0} runs no containers")]
    NotForContainers(Wanted),
    /// It does not say what it is.
    #[error("cannot run {} --version", path.display())]
    Run {
        /// The program.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl RuntimeError {
    /// What a person can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Find(FindError::NotInPath { program }) => {
                format!("install {program}, or leave --runtime away")
            }
            Self::NoneInstalled => {
                "install runc: the package is called so on Debian, Ubuntu, Fedora, Alpine and \
                 Arch; or make the Space with --kind vm"
                    .to_owned()
            }
            Self::Find(FindError::OverrideMissing { variable, .. }) => {
                format!("unset or mend {variable}")
            }
            Self::NotForContainers(_) => "use --runtime runc, crun, youki or runsc".to_owned(),
            Self::Run { path, .. } => format!("try it by hand: {} --version", path.display()),
        }
    }
}

/// Finds the runtime that `wanted` names, or the first that is installed.
pub fn find(wanted: Wanted) -> Result<Runtime, RuntimeError> {
    match wanted {
        Wanted::Auto => AUTOMATIC
            .into_iter()
            .find_map(|name| match named(name) {
                Err(RuntimeError::Find(FindError::NotInPath { .. })) => None,
                found => Some(found),
            })
            .unwrap_or(Err(RuntimeError::NoneInstalled)),
        Wanted::Qemu => Err(RuntimeError::NotForContainers(wanted)),
        Wanted::Runc | Wanted::Crun | Wanted::Youki | Wanted::Runsc => named(wanted),
    }
}

fn named(name: Wanted) -> Result<Runtime, RuntimeError> {
    let path = airlock_process::find(name.as_str(), RUNTIME_VARIABLE)?;
    let output = Command::new(&path)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|source| RuntimeError::Run {
            path: path.clone(),
            source,
        })?;
    Ok(Runtime {
        name,
        version: version(&String::from_utf8_lossy(&output.stdout)),
        path,
    })
}

/// The first word of the first line that starts with a digit.
fn version(output: &str) -> String {
    output
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        .unwrap_or("of unknown version")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(version("runc version 1.1.5+ds1\ncommit: x\n"), "1.1.5+ds1");
        assert_eq!(version("crun version 1.8.1\n"), "1.8.1");
        assert_eq!(version(""), "of unknown version");
    }

    #[test]
    fn qemu_is_no_runtime_of_containers() {
        let refused = find(Wanted::Qemu).unwrap_err();
        assert_eq!(refused.to_string(), "qemu runs no containers");
        assert!(refused.hint().contains("runc"));
    }
}
