//! What this host has, what it lacks, and how to mend that.

use airlock_image::host::{Arch as PackageArch, Family, Host, Purpose, install_plan, is_root};
use airlock_model::{Accel, ImageName, Runtime};
use airlock_oci::Ids;
use airlock_oci::cgroup::Support;
use airlock_process::RunAs;
use airlock_qemu::{Arch, discover};
use serde::Serialize;

use crate::Engine;
use crate::create::host_arch;

/// How one thing fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It works.
    Ok,
    /// Airlock works, but slower or with less.
    Warning,
    /// Airlock does not work without it.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is: `qemu`, `accelerator`, `network`, …
    pub name: &'static str,
    /// How it fares.
    pub verdict: Verdict,
    /// What was found.
    pub detail: String,
    /// How to mend it, if there is something to mend.
    pub hint: Option<String>,
}

/// What `airlock doctor` shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorReport {
    /// Every thing that was looked at.
    pub findings: Vec<Finding>,
}

impl DoctorReport {
    /// Whether Spaces can be made here.
    pub fn is_healthy(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.verdict != Verdict::Missing)
    }
}

impl Engine {
    /// Looks at everything that Airlock needs from this host. Proves the accelerator with a real
    /// boot if an image is there and the verdict is not known yet.
    pub async fn doctor(&self) -> DoctorReport {
        let mut findings = Vec::new();
        let qemu = self.qemu(&mut findings).await;
        findings.push(self.accelerator(qemu.as_ref()).await);
        findings.push(containers());
        findings.push(container_ids());
        findings.push(limits());
        findings.push(network());
        findings.extend(tools());
        findings.push(self.images());
        findings.push(self.disk());
        findings.push(memory());
        findings.push(user());
        DoctorReport { findings }
    }

    async fn qemu(&self, findings: &mut Vec<Finding>) -> Option<discover::Qemu> {
        match discover::find_qemu(host_arch()).await {
            Ok(qemu) => {
                let detail = format!("{} {}", qemu.path.display(), qemu.version);
                findings.push(ok("qemu", detail));
                Some(qemu)
            }
            Err(error) => {
                findings.push(missing("qemu", error.to_string(), error.hint()));
                None
            }
        }
    }

    async fn accelerator(&self, qemu: Option<&discover::Qemu>) -> Finding {
        const NAME: &str = "accelerator";
        let Some(qemu) = qemu else {
            let hint = "install QEMU first".to_owned();
            return missing(NAME, "cannot be tried without QEMU".to_owned(), hint);
        };
        let image = ImageName::new("tiny")
            .ok()
            .and_then(|name| self.catalog().get(&name).ok());
        let Some(image) = image else {
            let hint = "`airlock image build tiny` makes an image to try it with".to_owned();
            let detail = "not tried yet; the first Space proves it".to_owned();
            return Finding {
                name: NAME,
                verdict: Verdict::Warning,
                detail,
                hint: Some(hint),
            };
        };
        match self.resolve(Accel::Auto, qemu, &image).await {
            Ok(resolved) if resolved.accel == airlock_qemu::Backend::Tcg => Finding {
                name: NAME,
                verdict: Verdict::Warning,
                detail: format!(
                    "tcg (software emulation, several times slower): {}",
                    resolved.reason
                ),
                hint: Some("a host with hardware virtualisation for guests runs VMs faster".into()),
            },
            Ok(resolved) => ok(NAME, format!("{}: {}", resolved.accel, resolved.reason)),
            Err(error) => missing(NAME, error.to_string(), error.hint().to_owned()),
        }
    }

    fn images(&self) -> Finding {
        match self.catalog().ls() {
            Ok(images) => {
                let built: Vec<&str> = images
                    .iter()
                    .filter(|image| image.built)
                    .map(|image| image.name.as_str())
                    .collect();
                let detail = if built.is_empty() {
                    "none built yet; `spaces create` builds what it needs".to_owned()
                } else {
                    format!("built: {}", built.join(", "))
                };
                ok("images", detail)
            }
            Err(error) => missing(
                "images",
                error.to_string(),
                error.hint().unwrap_or_default(),
            ),
        }
    }

    fn disk(&self) -> Finding {
        const NEEDED_MB: u64 = 4096;
        let root = self.home().root();
        match rustix::fs::statvfs(root) {
            Ok(stat) => {
                let free_mb = stat.f_bavail.saturating_mul(stat.f_frsize) / (1024 * 1024);
                let detail = format!("{free_mb} MiB free in {}", root.display());
                if free_mb >= NEEDED_MB {
                    return ok("disk", detail);
                }
                let hint = format!("an image and a Space need about {NEEDED_MB} MiB");
                Finding {
                    name: "disk",
                    verdict: Verdict::Warning,
                    detail,
                    hint: Some(hint),
                }
            }
            Err(error) => missing("disk", error.to_string(), "set AIRLOCK_HOME".to_owned()),
        }
    }
}

fn ok(name: &'static str, detail: String) -> Finding {
    Finding {
        name,
        verdict: Verdict::Ok,
        detail,
        hint: None,
    }
}

fn missing(name: &'static str, detail: String, hint: String) -> Finding {
    let hint = (!hint.is_empty()).then_some(hint);
    Finding {
        name,
        verdict: Verdict::Missing,
        detail,
        hint,
    }
}

/// Whether container Spaces can be made, and by what.
fn containers() -> Finding {
    const NAME: &str = "containers";
    let found: Vec<String> = Runtime::ALL
        .iter()
        .filter(|name| !matches!(name, Runtime::Auto | Runtime::Qemu))
        .filter_map(|name| airlock_oci::runtime::find(*name).ok())
        .map(|runtime| runtime.to_string())
        .collect();
    match airlock_oci::runtime::find(Runtime::Auto) {
        Ok(first) => ok(
            NAME,
            format!("{} ({} is used)", found.join(", "), first.name),
        ),
        Err(error) => Finding {
            name: NAME,
            verdict: Verdict::Warning,
            detail: format!("{error}; Spaces are VMs"),
            hint: Some(error.hint()),
        },
    }
}

fn container_ids() -> Finding {
    const NAME: &str = "container ids";
    let ids = Ids::choose();
    match ids {
        Ids::Root { .. } | Ids::Subordinate { .. } => ok(NAME, ids.describe()),
        Ids::Single => Finding {
            name: NAME,
            verdict: Verdict::Warning,
            detail: ids.describe(),
            hint: Some("install uidmap, and give yourself ranges: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER".to_owned()),
        },
    }
}

fn limits() -> Finding {
    const NAME: &str = "container limits";
    let support = Support::detect();
    match support {
        Support::Limits { .. } => ok(NAME, support.describe()),
        Support::None { .. } => Finding {
            name: NAME,
            verdict: Verdict::Warning,
            detail: support.describe(),
            hint: Some(
                "a session of systemd with cgroup version 2 gives users groups of their own"
                    .to_owned(),
            ),
        },
    }
}

fn network() -> Finding {
    match airlock_net::passt::find() {
        Ok(path) => ok("network", path.display().to_string()),
        Err(error) => missing("network", error.to_string(), error.hint().to_owned()),
    }
}

/// What building images takes, one finding for all that is there and one for each that is not.
fn tools() -> Vec<Finding> {
    const NAME: &str = "image tools";
    let arch = match host_arch() {
        Arch::X86_64 => PackageArch::X86_64,
        Arch::Aarch64 => PackageArch::Aarch64,
    };
    let plan = install_plan(arch, !is_root());
    let builders = plan.iter().filter(|need| need.purpose != Purpose::Run);
    let (there, gone): (Vec<_>, Vec<_>) = builders.partition(|need| need.is_met());
    let mut findings = Vec::new();
    if !there.is_empty() {
        let names: Vec<&str> = there.iter().map(|need| need.tool).collect();
        findings.push(ok(NAME, names.join(", ")));
    }
    let family = Host::detect().family;
    for need in gone {
        let detail = format!("{} is missing: it {}", need.tool, need.why);
        let hint = match family {
            Family::Debian | Family::Ubuntu => format!("apt-get install {}", need.package),
            Family::Other => format!("install {} (Debian's package: {})", need.tool, need.package),
        };
        // Images that are built already work without.
        findings.push(Finding {
            name: NAME,
            verdict: Verdict::Warning,
            detail,
            hint: Some(hint),
        });
    }
    findings
}

fn memory() -> Finding {
    const NEEDED_MB: u64 = 2560;
    let available_mb = fs_err::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("MemAvailable:"))?;
            line.split_ascii_whitespace()
                .next()?
                .parse::<u64>()
                .ok()
                .map(|kib| kib / 1024)
        });
    match available_mb {
        None => ok("memory", "unknown".to_owned()),
        Some(mb) if mb >= NEEDED_MB => ok("memory", format!("{mb} MiB available")),
        Some(mb) => Finding {
            name: "memory",
            verdict: Verdict::Warning,
            detail: format!("{mb} MiB available"),
            hint: Some("a Space has 2048 MiB by default; --memory-mb makes it smaller".into()),
        },
    }
}

fn user() -> Finding {
    match RunAs::for_vm() {
        Some(run_as) => ok("user", format!("root; QEMU runs as uid {}", run_as.uid)),
        None => ok(
            "user",
            format!("uid {}", rustix::process::geteuid().as_raw()),
        ),
    }
}
