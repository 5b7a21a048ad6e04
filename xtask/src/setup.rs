//! `cargo xtask setup`: the packages that a host needs.

use std::process::Command;

use airlock_image::host::{Arch, Family, Host, PackageNeed, Purpose, install_plan, is_root};
use anyhow::{Result, bail};

use crate::run::{run, say};

/// What only the tests need: real peers to try Airlock against.
const FOR_TESTS: [PackageNeed; 3] = [
    PackageNeed {
        package: "docker-registry",
        tool: "docker-registry",
        why: "is the registry that images are pulled from",
        purpose: Purpose::Run,
    },
    PackageNeed {
        package: "busybox-static",
        tool: "busybox",
        why: "is what runs in the containers of the OCI tests",
        purpose: Purpose::Run,
    },
    PackageNeed {
        package: "iproute2",
        tool: "ip",
        why: "makes network namespaces for the OCI tests",
        purpose: Purpose::Run,
    },
];

/// Installs what is missing on Debian and Ubuntu; elsewhere says what to install.
pub(crate) fn run_quietly_if_complete() -> Result<()> {
    install(&[])
}

/// The same, with what the tests need on top.
pub(crate) fn for_tests() -> Result<()> {
    install(&FOR_TESTS)
}

fn install(more: &[PackageNeed]) -> Result<()> {
    let arch = if cfg!(target_arch = "aarch64") {
        Arch::Aarch64
    } else {
        Arch::X86_64
    };
    let missing: Vec<_> = install_plan(arch, !is_root())
        .into_iter()
        .chain(more.iter().cloned())
        .filter(|need| !need.is_met())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    say("this host lacks:");
    for need in &missing {
        say(&format!("  {} ({}): {}", need.package, need.tool, need.why));
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let family = Host::detect().family;
    if family == Family::Other {
        bail!(
            "install these first; Debian calls the packages {}, other systems may name them \
             differently",
            packages.join(", ")
        );
    }
    run(apt().args(["update", "--quiet"]))?;
    // Recommended packages are graphics and firmware that no Space uses.
    run(apt()
        .args(["install", "--yes", "--quiet", "--no-install-recommends"])
        .args(&packages))?;
    let still: Vec<&str> = missing
        .iter()
        .filter(|need| !need.is_met())
        .map(|need| need.tool)
        .collect();
    if !still.is_empty() {
        bail!(
            "the packages were installed, but there is still no {}",
            still.join(", ")
        );
    }
    Ok(())
}

/// The chore itself: as above, and says so when nothing is missing.
pub(crate) fn run_chore() -> Result<()> {
    run_quietly_if_complete()?;
    say("this host has all that Airlock needs");
    Ok(())
}

fn apt() -> Command {
    let mut command = if is_root() {
        Command::new("apt-get")
    } else {
        say("installing packages needs root rights: calling sudo");
        let mut sudo = Command::new("sudo");
        sudo.arg("apt-get");
        sudo
    };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}
