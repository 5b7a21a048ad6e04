//! Reads how far mmdebstrap is from what it prints.

use crate::progress::Phase;

/// Follows the lines of one run.
///
/// mmdebstrap calls apt twice, for the bare system and for the rest; each call says how many
/// packages it has to do with.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    packages: u32,
    unpacked: u32,
    configured: u32,
    fetched: u32,
}

impl Watcher {
    /// The step that a line speaks of, how much of it is done, and the package it is about.
    pub(crate) fn see<'l>(&mut self, line: &'l str) -> Option<(Phase, Option<f32>, &'l str)> {
        let mut words = line.split_whitespace();
        let first = words.next()?;
        if let Some(packages) = newly_installed(line) {
            *self = Self {
                packages,
                ..Self::default()
            };
            return None;
        }
        let (phase, done, detail) = match (first, words.next()) {
            (word, _) if word.starts_with("Get:") => {
                // Before the first count these are package lists.
                if self.packages == 0 {
                    return Some((Phase::Fetching, None, "package lists"));
                }
                self.fetched += 1;
                (
                    Phase::Fetching,
                    self.fetched,
                    words.nth(2).unwrap_or_default(),
                )
            }
            ("Unpacking", Some(package)) => {
                self.unpacked += 1;
                (Phase::Unpacking, self.unpacked, package)
            }
            ("Setting", Some("up")) => {
                self.configured += 1;
                (
                    Phase::Configuring,
                    self.configured,
                    words.next().unwrap_or_default(),
                )
            }
            _ => return None,
        };
        let fraction =
            (self.packages > 0).then(|| (done as f32 / self.packages as f32).clamp(0.0, 1.0));
        Some((phase, fraction, detail))
    }
}

/// The number in `0 upgraded, 89 newly installed, …`.
fn newly_installed(line: &str) -> Option<u32> {
    let (before, _) = line.split_once(" newly installed")?;
    before.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_a_run() {
        let mut watcher = Watcher::default();
        let mut see = |line| watcher.see(line);
        assert_eq!(
            see("Get:1 http://deb.debian.org/debian bookworm InRelease [151 kB]"),
            Some((Phase::Fetching, None, "package lists"))
        );
        assert_eq!(
            see("0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded."),
            None
        );
        assert_eq!(
            see(
                "Get:1 http://deb.debian.org/debian bookworm/main amd64 perl-base amd64 5.36 [1 kB]"
            ),
            Some((Phase::Fetching, Some(0.5), "perl-base"))
        );
        assert_eq!(
            see("Unpacking libc6:amd64 (2.36-9) ..."),
            Some((Phase::Unpacking, Some(0.5), "libc6:amd64"))
        );
        assert_eq!(
            see("Unpacking b (1) ..."),
            Some((Phase::Unpacking, Some(1.0), "b"))
        );
        assert_eq!(
            see("Setting up b (1) ..."),
            Some((Phase::Configuring, Some(0.5), "b"))
        );
        assert_eq!(see("0 upgraded, 4 newly installed, 0 to remove"), None);
        assert_eq!(
            see("Setting up c (1) ..."),
            Some((Phase::Configuring, Some(0.25), "c"))
        );
        assert_eq!(see("I: success in 3 seconds"), None);
        assert_eq!(see(""), None);
    }
}
