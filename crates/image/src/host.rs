//! What this host is and which of the programs that Airlock needs it has.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use fs_err as fs;

/// Folders that hold administrators' programs; an ordinary user's `PATH` on Debian lacks them.
const ADMIN_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Which names the host's packages have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Debian and what is made from it.
    Debian,
    /// Ubuntu and what is made from it.
    Ubuntu,
    /// No apt, or other package names.
    Other,
}

/// The processor architecture of the host and of every Space on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Arch {
    /// The architecture this program was compiled for.
    pub const HOST: Self = if cfg!(target_arch = "aarch64") {
        Self::Aarch64
    } else {
        Self::X86_64
    };

    /// Debian's name for it.
    pub fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        })
    }
}

/// The distribution that runs on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Which package names apply.
    pub family: Family,
    /// `ID` of os-release, for messages.
    pub id: String,
    /// The release's code name (of the parent distribution for a derivative), such as `bookworm`.
    pub codename: String,
}

impl Host {
    /// Reads `/etc/os-release`.
    pub fn detect() -> Self {
        let text = fs::read_to_string("/etc/os-release")
            .or_else(|_| fs::read_to_string("/usr/lib/os-release"))
            .unwrap_or_default();
        Self::from_os_release(&text)
    }

    /// Reads the text of an os-release file.
    pub fn from_os_release(text: &str) -> Self {
        let fields: BTreeMap<&str, &str> = text
            .lines()
            .filter_map(|line| line.trim().split_once('='))
            .map(|(key, value)| (key, value.trim_matches(['"', '\''])))
            .collect();
        let field = |key: &str| fields.get(key).copied().unwrap_or_default();
        let id = field("ID");
        let like = |name: &str| id == name || field("ID_LIKE").split(' ').any(|like| like == name);
        let (family, parent) = if like("ubuntu") {
            (Family::Ubuntu, field("UBUNTU_CODENAME"))
        } else if like("debian") {
            (Family::Debian, field("DEBIAN_CODENAME"))
        } else {
            (Family::Other, "")
        };
        let codename = if parent.is_empty() {
            field("VERSION_CODENAME")
        } else {
            parent
        };
        Self {
            family,
            id: id.to_owned(),
            codename: codename.to_owned(),
        }
    }
}

/// What a package is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To run any VM Space.
    Run,
    /// To build any image.
    BuildAny,
    /// To build images with a root file system, such as `linux`.
    BuildRoot,
}

/// One package that a host needs, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageNeed {
    /// The package's name on Debian and Ubuntu.
    pub package: &'static str,
    /// The program in it that Airlock calls; the package counts as there when this is.
    pub tool: &'static str,
    /// What Airlock does with it.
    pub why: &'static str,
    /// What cannot be done without it.
    pub purpose: Purpose,
}

impl PackageNeed {
    /// Whether the program is there already.
    pub fn is_met(&self) -> bool {
        find_tool(self.tool).is_some()
    }
}

/// All packages that Airlock uses on a host of this architecture.
///
/// `user_build` adds what an ordinary user needs, on top of what root needs, to build a root
/// file system.
pub fn install_plan(arch: Arch, user_build: bool) -> Vec<PackageNeed> {
    let need = |package, tool, why, purpose| PackageNeed {
        package,
        tool,
        why,
        purpose,
    };
    let mut plan = vec![
        match arch {
            Arch::X86_64 => need(
                "qemu-system-x86",
                "qemu-system-x86_64",
                "runs VM Spaces",
                Purpose::Run,
            ),
            Arch::Aarch64 => need(
                "qemu-system-arm",
                "qemu-system-aarch64",
                "runs VM Spaces",
                Purpose::Run,
            ),
        },
        need("runc", "runc", "runs container Spaces", Purpose::Run),
        need(
            "passt",
            "passt",
            "gives Spaces a network without root rights",
            Purpose::Run,
        ),
        need(
            "apt",
            "apt-get",
            "fetches the kernel and busybox packages",
            Purpose::BuildAny,
        ),
        need("dpkg", "dpkg-deb", "unpacks packages", Purpose::BuildAny),
        need(
            "xz-utils",
            "xz",
            "unpacks kernel modules",
            Purpose::BuildAny,
        ),
        need(
            "zstd",
            "zstd",
            "unpacks kernel modules and kernels",
            Purpose::BuildAny,
        ),
        need(
            "mmdebstrap",
            "mmdebstrap",
            "makes the root file system's content",
            Purpose::BuildRoot,
        ),
        need(
            "e2fsprogs",
            "mke2fs",
            "makes the root file system",
            Purpose::BuildRoot,
        ),
    ];
    if user_build {
        plan.push(need(
            "uidmap",
            "newuidmap",
            "lets an ordinary user make files of other owners",
            Purpose::BuildRoot,
        ));
        plan.push(need(
            "fakeroot",
            "fakeroot",
            "keeps file owners in a root file system made by an ordinary user",
            Purpose::BuildRoot,
        ));
    }
    plan
}

/// Whether this process has root's rights, so that root file systems are made directly.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Finds a program in `PATH` and in the administrators' folders.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(ADMIN_FOLDERS.map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| is_program(candidate))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Programs that are not there, with what would bring them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this host lacks {}", tools(needs))]
pub struct MissingTools {
    /// What is missing.
    pub needs: Vec<PackageNeed>,
    /// Decides what the hint says.
    pub family: Family,
}

fn tools(needs: &[PackageNeed]) -> String {
    needs
        .iter()
        .map(|need| need.tool)
        .collect::<Vec<_>>()
        .join(", ")
}

impl MissingTools {
    /// Checks that every program of `purpose` is there.
    pub fn check(host: &Host, purpose: Purpose) -> Result<(), Self> {
        Self::check_in(host, purpose, find_tool)
    }

    /// Checks that these programs are there.
    pub(crate) fn check_tools(host: &Host, tools: &[&str]) -> Result<(), Self> {
        // An ordinary user's plan has all programs that anybody needs.
        let needs: Vec<PackageNeed> = install_plan(Arch::HOST, true)
            .into_iter()
            .filter(|need| tools.contains(&need.tool) && !need.is_met())
            .collect();
        if needs.is_empty() {
            Ok(())
        } else {
            Err(Self {
                needs,
                family: host.family,
            })
        }
    }

    fn check_in(
        host: &Host,
        purpose: Purpose,
        find: impl Fn(&str) -> Option<PathBuf>,
    ) -> Result<(), Self> {
        // Compression programs are asked for by whoever meets a compressed file.
        let optional = ["xz", "zstd"];
        let needs: Vec<PackageNeed> = install_plan(Arch::HOST, !is_root())
            .into_iter()
            .filter(|need| need.purpose == purpose && !optional.contains(&need.tool))
            .filter(|need| find(need.tool).is_none())
            .collect();
        if needs.is_empty() {
            Ok(())
        } else {
            Err(Self {
                needs,
                family: host.family,
            })
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> String {
        let packages: Vec<&str> = self.needs.iter().map(|need| need.package).collect();
        match self.family {
            Family::Debian | Family::Ubuntu => {
                format!("install them: sudo apt-get install {}", packages.join(" "))
            }
            Family::Other => {
                let lines: Vec<String> = self
                    .needs
                    .iter()
                    .map(|need| {
                        format!("{} ({}; on Debian: {})", need.tool, need.why, need.package)
                    })
                    .collect();
                format!(
                    "install these programs by this system's own means: {}; or build the image \
                     on a Debian or Ubuntu machine and copy its images folder here",
                    lines.join(", ")
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_distributions_apart() {
        let debian = Host::from_os_release("ID=debian\nVERSION_CODENAME=bookworm\n");
        assert_eq!(
            (debian.family, debian.codename.as_str()),
            (Family::Debian, "bookworm")
        );
        let ubuntu = Host::from_os_release(
            "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\nUBUNTU_CODENAME=noble\n",
        );
        assert_eq!(
            (ubuntu.family, ubuntu.codename.as_str()),
            (Family::Ubuntu, "noble")
        );
        let mint = Host::from_os_release(
            "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\nVERSION_CODENAME=wilma\nUBUNTU_CODENAME=noble",
        );
        assert_eq!(
            (mint.family, mint.codename.as_str()),
            (Family::Ubuntu, "noble")
        );
        let fedora = Host::from_os_release("ID=fedora\nVERSION_ID=41\n");
        assert_eq!(fedora.family, Family::Other);
        assert_eq!(Host::from_os_release("").family, Family::Other);
    }

    #[test]
    fn missing_tools_name_packages_or_programs() {
        let host = |family| Host {
            family,
            id: "x".into(),
            codename: "y".into(),
        };
        let check = |family| MissingTools::check_in(&host(family), Purpose::BuildRoot, |_| None);
        let debian = check(Family::Debian).unwrap_err();
        assert!(
            debian.to_string().contains("mmdebstrap, mke2fs"),
            "{debian}"
        );
        assert!(
            debian
                .hint()
                .contains("apt-get install mmdebstrap e2fsprogs")
        );
        let other = check(Family::Other).unwrap_err();
        assert!(!other.hint().contains("apt-get install"));
        assert!(
            other
                .hint()
                .contains("mke2fs (makes the root file system; on Debian: e2fsprogs)")
        );
    }

    #[test]
    fn the_plan_avoids_packages_that_are_not_needed() {
        let plan = install_plan(Arch::Aarch64, true);
        let names: Vec<&str> = plan.iter().map(|need| need.package).collect();
        assert!(names.contains(&"qemu-system-arm") && names.contains(&"fakeroot"));
        assert!(!names.contains(&"qemu-utils"));
        assert!(
            install_plan(Arch::X86_64, false)
                .iter()
                .all(|need| need.package != "uidmap")
        );
    }

    #[test]
    fn finds_programs_outside_an_ordinary_path() {
        assert!(find_tool("sh").is_some());
        assert!(find_tool("no-such-program-here").is_none());
    }
}
