//! Remembers verdicts. A cache that cannot be read or written costs a probe, never an error.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use super::{Backend, ProbeContext, Verdict};

/// Verdicts kept at most; older ones of other boots go first.
const MAX_VERDICTS: usize = 32;

/// Everything that a verdict depends on, as one text.
pub(super) fn key(backend: Backend, context: &ProbeContext<'_>) -> String {
    let boot_id = fs_err::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let (uid, gid) = context.run_as.map_or_else(
        || {
            let uid = rustix::process::geteuid().as_raw();
            (uid, rustix::process::getegid().as_raw())
        },
        |user| (user.uid, user.gid),
    );
    format!(
        "{} {backend} {uid}:{gid} {} {} {}",
        boot_id.trim(),
        context.qemu.version,
        context.qemu.path.display(),
        context.kernel.display(),
    )
}

pub(super) fn load(file: &Path, key: &str) -> Option<Verdict> {
    read(file).remove(key)
}

/// Replaces the file in one step: another process may read or write it at the same time.
pub(super) fn store(file: &Path, key: &str, verdict: &Verdict) {
    let mut verdicts = read(file);
    // The boot id comes first in every key.
    let boot_id = key.split(' ').next().unwrap_or_default();
    verdicts.retain(|key, _| key.starts_with(boot_id));
    while verdicts.len() >= MAX_VERDICTS {
        verdicts.pop_first();
    }
    verdicts.insert(key.to_owned(), verdict.clone());
    if let Err(error) = replace(file, &verdicts) {
        tracing::debug!(%error, "the accelerator verdict is not remembered");
    }
}

fn read(file: &Path) -> BTreeMap<String, Verdict> {
    let bytes = fs_err::read(file).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

fn replace(file: &Path, verdicts: &BTreeMap<String, Verdict>) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
    temporary.write_all(&serde_json::to_vec_pretty(verdicts)?)?;
    temporary.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(reason: &str) -> Verdict {
        Verdict {
            works: false,
            reason: reason.into(),
        }
    }

    #[test]
    fn keeps_this_boots_verdicts_and_forgets_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("accel.json");
        assert_eq!(load(&file, "boot1 kvm"), None);
        store(&file, "boot1 kvm", &verdict("a"));
        store(&file, "boot1 hvf", &verdict("b"));
        assert_eq!(load(&file, "boot1 kvm"), Some(verdict("a")));
        store(&file, "boot2 kvm", &verdict("c"));
        assert_eq!(load(&file, "boot1 kvm"), None);
        assert_eq!(load(&file, "boot2 kvm"), Some(verdict("c")));
    }

    #[test]
    fn damage_and_missing_folders_are_no_errors() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("accel.json");
        fs_err::write(&file, b"{\"x\": [").unwrap();
        assert_eq!(load(&file, "x"), None);
        store(&file, "b x", &verdict("a"));
        assert_eq!(load(&file, "b x"), Some(verdict("a")));
        store(
            &folder.path().join("missing/accel.json"),
            "b x",
            &verdict("a"),
        );
    }
}
