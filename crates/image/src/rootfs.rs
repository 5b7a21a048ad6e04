//! The root file system of the `linux` image: a small Debian or Ubuntu without an init system.
//!
//! guestd is the first process, so nothing of systemd is installed. Identity (machine id, SSH host
//! keys, host name) is removed: each Space makes its own.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::command::Tool;
use crate::error::BuildError;
use crate::host::{Family, MissingTools, Purpose, is_root};
use crate::job::Job;
use crate::progress::Phase;
use crate::rootfs::progress::Watcher;
use crate::sources;

mod progress;

/// Raised when the same packages give another root file system than before.
pub(crate) const RECIPE: u32 = 1;

/// What a person expects on a Linux machine and the package manager's bare system lacks.
///
/// `mount`, `passwd` and `e2fsprogs` are parts of every usual installation; `attr` and `xz-utils`
/// let archives and file attributes survive a copy.
const PACKAGES: [&str; 16] = [
    "attr",
    "bash",
    "ca-certificates",
    "coreutils",
    "curl",
    "e2fsprogs",
    "git",
    "iproute2",
    "mount",
    "openssh-server",
    "passwd",
    "procps",
    "python3",
    "rsync",
    "tar",
    "xz-utils",
];

/// Documentation and translations; the licence texts stay.
const LEFT_OUT: [&str; 8] = [
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/lintian/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-include=/usr/share/locale/locale.alias",
    // The disk is an overlay that nobody syncs anyway; this halves the time of `apt install`.
    "force-unsafe-io",
];

/// Removes what makes one machine another than the next, and what the host put in.
const FORGET_IDENTITY: &str = r#"
rm -f "$1"/etc/ssh/ssh_host_*_key "$1"/etc/ssh/ssh_host_*_key.pub
rm -f "$1"/etc/machine-id "$1"/var/lib/dbus/machine-id
rm -f "$1"/etc/hostname "$1"/etc/resolv.conf
rm -f "$1"/var/cache/ldconfig/aux-cache "$1"/var/cache/debconf/*-old "$1"/var/lib/dpkg/*-old
rm -f "$1"/var/log/*.log "$1"/var/log/apt/*
"#;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 4 * KIB;
const BLOCK_GROUP_BYTES: u64 = 128 * MIB;

/// The journal. It stays although the disk is disposable: a Space whose QEMU is killed is started
/// again from what the host's page cache holds, and the journal makes that whole without a check
/// of the file system. It is small because it holds metadata alone.
const JOURNAL_MIB: u64 = 32;

/// The file system grows to the Space's `--disk-gb` while mounted, up to this.
const MAX_GROWN_BYTES: u64 = 2 << 40;

/// Room for files added between the first boot and the growth.
const SLACK_BYTES: u64 = 64 * MIB;

/// A finished root file system, still in the build folder.
pub(crate) struct Root {
    pub(crate) file: PathBuf,
    pub(crate) suite: String,
}

/// Builds the root file system.
pub(crate) fn build(job: &Job<'_>) -> Result<Root, BuildError> {
    match job.host.family {
        Family::Debian | Family::Ubuntu => {}
        Family::Other => {
            return Err(BuildError::UnsupportedHost {
                id: job.host.id.clone(),
            });
        }
    }
    MissingTools::check(&job.host, Purpose::BuildRoot)?;
    let work = job.dir.folder("root")?;
    let sources_file = work.join("sources.list");
    let sources = sources::own_sources(&job.host);
    fs::write(&sources_file, &sources)?;
    let suite = sources::main_suite(&sources, &job.host);
    let image = work.join("root.ext4");
    let tree = work.join("tree");
    if is_root() {
        bootstrap(job, "root", "directory", &suite, &tree, &sources_file)?;
        make_file_system(job, &tree, &image, None)?;
    } else {
        // Files of other owners exist only inside a user name space, so the content travels as an
        // archive, and fakeroot remembers the owners.
        let archive = work.join("root.tar");
        bootstrap(job, "unshare", "tar", &suite, &archive, &sources_file)?;
        let owners = work.join("owners");
        unpack_as_user(job, &archive, &tree, &owners)?;
        fs::remove_file(archive)?;
        make_file_system(job, &tree, &image, Some(&owners))?;
    }
    Ok(Root { file: image, suite })
}

fn bootstrap(
    job: &Job<'_>,
    mode: &str,
    format: &str,
    suite: &str,
    target: &Path,
    sources: &Path,
) -> Result<(), BuildError> {
    let mut packages = PACKAGES.join(",");
    if job.host.family == Family::Ubuntu {
        packages.push_str(",ubuntu-keyring");
    }
    let tool = if mode == "root" {
        // What it leaves in its temporary folder when it is killed goes with the build folder.
        Tool::contained("mmdebstrap").env("TMPDIR", &job.dir.folder("tmp")?)
    } else {
        Tool::new("mmdebstrap")
    };
    let tool = tool
        .args(["--verbose", "--variant=apt"])
        .arg(format!("--mode={mode}"))
        .arg(format!("--format={format}"))
        .arg(format!("--include={packages}"))
        .args(LEFT_OUT.map(|option| format!("--dpkgopt={option}")))
        .arg(format!("--customize-hook={FORGET_IDENTITY}"))
        .arg(suite)
        .arg(target)
        .arg(sources);
    job.report(Phase::Resolving, None, suite);
    let mut watcher = Watcher::default();
    job.run(tool, &mut |line| {
        if let Some((phase, fraction, detail)) = watcher.see(line) {
            job.report(phase, fraction, detail);
        }
    })
}

fn unpack_as_user(
    job: &Job<'_>,
    archive: &Path,
    tree: &Path,
    owners: &Path,
) -> Result<(), BuildError> {
    job.report(Phase::Unpacking, None, "root file system");
    fs::create_dir(tree)?;
    let tool = Tool::new("fakeroot")
        .arg("-s")
        .arg(owners)
        .args(["--", "tar", "--numeric-owner", "--xattrs", "-xpf"])
        .arg(archive)
        .arg("-C")
        .arg(tree);
    job.run(tool, &mut |_| {})
}

pub(crate) fn make_file_system(
    job: &Job<'_>,
    tree: &Path,
    image: &Path,
    owners: Option<&Path>,
) -> Result<(), BuildError> {
    job.report(Phase::MakingFileSystem, None, "");
    let bytes = file_system_bytes(tree_bytes(job, tree)?);
    let grown_blocks = MAX_GROWN_BYTES / BLOCK_BYTES;
    let mke2fs = [
        "-t".to_owned(),
        "ext4".to_owned(),
        "-F".to_owned(),
        "-q".to_owned(),
        "-L".to_owned(),
        "airlock-root".to_owned(),
        // Stated because mke2fs picks tiny blocks for a small file system, and this one grows.
        "-b".to_owned(),
        BLOCK_BYTES.to_string(),
        "-i".to_owned(),
        "16384".to_owned(),
        "-I".to_owned(),
        "256".to_owned(),
        "-m".to_owned(),
        "0".to_owned(),
        "-J".to_owned(),
        format!("size={JOURNAL_MIB}"),
        "-E".to_owned(),
        format!(
            "resize={grown_blocks},lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0"
        ),
    ];
    let tool = match owners {
        None => Tool::new("mke2fs"),
        Some(owners) => Tool::new("fakeroot")
            .arg("-i")
            .arg(owners)
            .args(["--", "mke2fs"]),
    };
    let tool = tool
        .args(mke2fs)
        .arg("-d")
        .arg(tree)
        .arg(image)
        .arg((bytes / KIB).to_string() + "k");
    job.run(tool, &mut |_| {})
}

/// What the content takes: whole blocks of every file and one block of every folder and link.
fn tree_bytes(job: &Job<'_>, folder: &Path) -> Result<u64, BuildError> {
    job.check_cancelled()?;
    let mut bytes = BLOCK_BYTES;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += if meta.is_dir() {
            tree_bytes(job, &entry.path())?
        } else {
            meta.size().div_ceil(BLOCK_BYTES) * BLOCK_BYTES
        };
    }
    Ok(bytes)
}

/// The smallest file system, in whole block groups, that holds `content_bytes` with some room.
fn file_system_bytes(content_bytes: u64) -> u64 {
    // Inode tables (256 bytes for each 16 KiB) and block maps stay under a fortieth.
    let metadata = content_bytes / 40 + 16 * MIB;
    let bytes = content_bytes + metadata + JOURNAL_MIB * MIB + SLACK_BYTES;
    bytes.div_ceil(BLOCK_GROUP_BYTES) * BLOCK_GROUP_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_whole_block_groups_with_room() {
        for content in [0, 1, 100 * MIB, 226 * MIB, 5_000 * MIB] {
            let bytes = file_system_bytes(content);
            assert_eq!(bytes % BLOCK_GROUP_BYTES, 0);
            assert!(bytes >= content + JOURNAL_MIB * MIB + SLACK_BYTES);
        }
    }
}
