//! The mode of new files.

use std::sync::LazyLock;

/// Bits that this process clears in the mode of what it makes.
///
/// Reading it with `umask(2)` would change it for a moment, so the kernel's own account is read;
/// where there is none, the careful value is taken.
pub(super) fn umask() -> u32 {
    static UMASK: LazyLock<u32> = LazyLock::new(|| {
        std::fs::read_to_string("/proc/self/status")
            .ok()
            .and_then(|status| {
                let line = status
                    .lines()
                    .find_map(|line| line.strip_prefix("Umask:"))?;
                u32::from_str_radix(line.trim(), 8).ok()
            })
            .unwrap_or(0o077)
    });
    *UMASK
}
