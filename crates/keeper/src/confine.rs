//! A keeper that has started its machine gives up what it does not need any more.
//!
//! It reads answers of guestd for the rest of its life, and guestd may be hostile. Made by root, it
//! would be root for that long: so it keeps one capability, may gain none, and reaches no file but
//! those of its Space and the groups in which the host counts it.

use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus,
    path_beneath_rules,
};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// What a newer kernel could restrict on top is not needed here.
const LANDLOCK: ABI = ABI::V3;
/// Folders that are changed when the machine ends, and those that are only read.
const CGROUPS: &str = "/sys/fs/cgroup";
const READ_ONLY: [&str; 2] = ["/proc", "/dev"];

/// Confines the calling thread, and every thread that it starts from now on, to `space`.
///
/// What the host cannot do is passed over and logged: a second wall, not the first.
pub(crate) fn confine(space: &Path) {
    if rustix::process::geteuid().is_root()
        && let Err(error) = drop_capabilities()
    {
        tracing::warn!(%error, "the keeper keeps its capabilities");
    }
    if let Err(error) = rustix::thread::set_no_new_privs(true) {
        tracing::warn!(%error, "the keeper may gain privileges");
    }
    match restrict_files(space) {
        Ok(RulesetStatus::FullyEnforced) => {}
        Ok(status) => tracing::debug!(?status, "the keeper is not confined to its files"),
        Err(error) => tracing::warn!(%error, "the keeper is not confined to its files"),
    }
}

/// Keeps the right to kill QEMU, which runs as another user.
fn drop_capabilities() -> rustix::io::Result<()> {
    let kept = CapabilitySet::KILL;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)
}

fn restrict_files(space: &Path) -> Result<RulesetStatus, landlock::RulesetError> {
    let all = AccessFs::from_all(LANDLOCK);
    let read = AccessFs::from_read(LANDLOCK);
    let status = Ruleset::default()
        .handle_access(all)?
        .create()?
        .add_rules(path_beneath_rules([space, Path::new(CGROUPS)], all))?
        .add_rules(path_beneath_rules(READ_ONLY, read))?
        .restrict_self()?;
    Ok(status.ruleset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confined_thread_reaches_its_space_alone() {
        let space = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("secret"), "x").unwrap();
        let (inside, outside) = (space.path().to_owned(), other.path().to_owned());
        // A thread of its own: what it gives up is gone for good.
        let refused = std::thread::spawn(move || {
            confine(&inside);
            std::fs::write(inside.join("state.json"), "{}").unwrap();
            std::fs::rename(inside.join("state.json"), inside.join("moved")).unwrap();
            std::fs::read_to_string("/proc/self/stat").unwrap();
            std::fs::read(outside.join("secret")).is_err()
                && std::fs::write(outside.join("new"), "x").is_err()
        });
        let refused = refused.join().unwrap();
        if landlock_works() {
            assert!(refused, "a file outside the Space was reached");
        }
    }

    /// Whether this kernel has Landlock at all.
    fn landlock_works() -> bool {
        let space = tempfile::tempdir().unwrap();
        let path = space.path().to_owned();
        std::thread::spawn(move || {
            matches!(restrict_files(&path), Ok(RulesetStatus::FullyEnforced))
        })
        .join()
        .unwrap()
    }
}
