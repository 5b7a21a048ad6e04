//! Finds QEMU on this host, and says how to get it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use airlock_process::FindError;

use crate::argv::Arch;

/// Environment variable that names the QEMU program to use.
pub const QEMU_VARIABLE: &str = "AIRLOCK_QEMU";
/// The oldest QEMU that has what we ask for (`-netdev stream`, qcow2 nodes on descriptor sets).
pub const OLDEST_QEMU: Version = Version {
    major: 7,
    minor: 2,
    micro: 0,
};

const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// A QEMU release.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub micro: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

/// A usable QEMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qemu {
    /// The program.
    pub path: PathBuf,
    /// What it executes.
    pub arch: Arch,
    /// Its release.
    pub version: Version,
}

/// Why no usable program was found.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// QEMU is not installed.
    #[error("{program} is not in PATH")]
    NoQemu {
        /// The program's name.
        program: String,
        /// What it would execute.
        arch: Arch,
    },
    /// A variable names a file that is not there.
    #[error(transparent)]
    Override(FindError),
    /// The program does not run.
    #[error("cannot run {path}")]
    Run {
        /// The program.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The program runs but says nothing that looks like a release.
    #[error("{path} --version says {output:?}, which names no release")]
    NoVersion {
        /// The program.
        path: PathBuf,
        /// The start of what it printed.
        output: String,
    },
    /// The program did not answer.
    #[error("{path} --version did not end in {VERSION_TIMEOUT:?}")]
    Slow {
        /// The program.
        path: PathBuf,
    },
    /// The release lacks what Airlock needs.
    #[error("{path} is QEMU {found}, at least {OLDEST_QEMU} is needed")]
    TooOld {
        /// The program.
        path: PathBuf,
        /// Its release.
        found: Version,
    },
}

impl DiscoverError {
    /// What a person can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::NoQemu { arch, .. } => qemu_packages(*arch),
            Self::TooOld { .. } => {
                "install a newer QEMU, or name another one with AIRLOCK_QEMU".to_owned()
            }
            Self::Override(_) => format!("unset or mend {QEMU_VARIABLE}"),
            Self::Run { path, .. } | Self::NoVersion { path, .. } | Self::Slow { path } => {
                format!("try it by hand: {} --version", path.display())
            }
        }
    }
}

fn qemu_packages(arch: Arch) -> String {
    let (debian, fedora, arch_linux) = match arch {
        Arch::X86_64 => ("qemu-system-x86", "qemu-system-x86-core", "qemu-system-x86"),
        Arch::Aarch64 => (
            "qemu-system-arm",
            "qemu-system-aarch64-core",
            "qemu-system-aarch64",
        ),
    };
    let alpine = arch.as_str();
    format!(
        "install QEMU: Debian and Ubuntu {debian}, Fedora {fedora}, Arch {arch_linux}, \
         Alpine qemu-system-{alpine}, macOS (Homebrew) qemu"
    )
}

/// Finds the QEMU for `arch`: [`QEMU_VARIABLE`] if set, else `qemu-system-<arch>` in `PATH`.
pub async fn find_qemu(arch: Arch) -> Result<Qemu, DiscoverError> {
    let program = format!("qemu-system-{}", arch.as_str());
    let path = match airlock_process::find(&program, QEMU_VARIABLE) {
        Ok(path) => path,
        Err(FindError::NotInPath { program }) => {
            return Err(DiscoverError::NoQemu { program, arch });
        }
        Err(error @ FindError::OverrideMissing { .. }) => {
            return Err(DiscoverError::Override(error));
        }
    };
    let version = qemu_version(&path).await?;
    if version < OLDEST_QEMU {
        return Err(DiscoverError::TooOld {
            path,
            found: version,
        });
    }
    Ok(Qemu {
        path,
        arch,
        version,
    })
}

async fn qemu_version(path: &Path) -> Result<Version, DiscoverError> {
    let run = tokio::process::Command::new(path)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(VERSION_TIMEOUT, run)
        .await
        .map_err(|_elapsed| DiscoverError::Slow {
            path: path.to_owned(),
        })?
        .map_err(|source| DiscoverError::Run {
            path: path.to_owned(),
            source,
        })?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse_version(&text).ok_or_else(|| DiscoverError::NoVersion {
        path: path.to_owned(),
        output: text.chars().take(120).collect(),
    })
}

/// Reads `QEMU emulator version 7.2.22 (Debian …)`, the first line of `--version`.
fn parse_version(text: &str) -> Option<Version> {
    let rest = text.lines().next()?.split_once("version ")?.1;
    let number = rest.split([' ', '(', '-']).next()?;
    let mut parts = number.split('.').map(str::parse::<u32>);
    let major = parts.next()?.ok()?;
    let minor = parts.next()?.ok()?;
    let micro = match parts.next() {
        Some(micro) => micro.ok()?,
        None => 0,
    };
    Some(Version {
        major,
        minor,
        micro,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_releases_as_distributions_write_them() {
        let cases = [
            (
                "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright",
                (7, 2, 22),
            ),
            ("QEMU emulator version 10.0.0", (10, 0, 0)),
            ("QEMU emulator version 8.1", (8, 1, 0)),
            ("QEMU emulator version 9.2.0-rc1 (v9.2.0)", (9, 2, 0)),
        ];
        for (text, (major, minor, micro)) in cases {
            assert_eq!(
                parse_version(text),
                Some(Version {
                    major,
                    minor,
                    micro
                }),
                "{text}"
            );
        }
        for text in [
            "",
            "QEMU",
            "QEMU emulator version",
            "QEMU emulator version x.y",
            "version 7",
        ] {
            assert_eq!(parse_version(text), None, "{text}");
        }
    }

    #[test]
    fn versions_compare_by_number() {
        let ten = Version {
            major: 10,
            minor: 0,
            micro: 0,
        };
        assert!(ten > OLDEST_QEMU);
    }

    #[test]
    fn hints_name_packages() {
        let error = DiscoverError::NoQemu {
            program: "q".into(),
            arch: Arch::X86_64,
        };
        assert!(
            error.hint().contains("qemu-system-x86,"),
            "{}",
            error.hint()
        );
    }
}
