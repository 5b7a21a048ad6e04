//! The Space's logs, held to a size.
//!
//! Whatever runs in a Space may write to its console for ever. QEMU appends to a file that it got
//! as a descriptor, so the file can be cut short under it: the next byte goes to the new end.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// A log is cut when it is longer than this.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// What is left of a log that is cut: its end, where the reason of a failure stands.
const KEPT_BYTES: u64 = 1024 * 1024;
/// How often sizes are looked at. Between two looks a fast console writes some megabytes.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Says at the start of a log that this is not its beginning.
const CUT_MARK: &[u8] = b"[airlock: older lines were removed]\n";

/// Keeps the logs at `paths` short until `cancel`.
pub(crate) async fn keep_short(paths: Vec<PathBuf>, cancel: CancellationToken) {
    let mut interval = tokio::time::interval(LOOK_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while cancel.run_until_cancelled(interval.tick()).await.is_some() {
        for path in &paths {
            if let Err(error) = cut(path) {
                tracing::warn!(%error, path = %path.display(), "cannot shorten a log");
            }
        }
    }
}

/// Cuts all but the end of the file at `path`, if it is long. What is written to it meanwhile may
/// be lost; its writers must append.
fn cut(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.len() > MAX_BYTES => {}
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    let file = File::options().read(true).append(true).open(path)?;
    let from = file.metadata()?.len().saturating_sub(KEPT_BYTES);
    let mut kept = vec![0; KEPT_BYTES as usize];
    file.read_exact_at(&mut kept, from)?;
    let line = kept
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    file.set_len(0)?;
    // One write: other appenders come before or after it.
    let text = [CUT_MARK, &kept[line..]].concat();
    io::Write::write_all(&mut &file, &text)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_long_log_keeps_its_end_and_its_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("console.log");
        cut(&path).unwrap();
        let mut options = File::options();
        let mut writer = options.create(true).append(true).open(&path).unwrap();
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        writer
            .write_all(&line.repeat(MAX_BYTES as usize / 1024))
            .unwrap();
        cut(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), MAX_BYTES);
        writer.write_all(b"the reason\n").unwrap();
        cut(&path).unwrap();
        writer.write_all(b"goes on\n").unwrap();
        let text = std::fs::read(&path).unwrap();
        assert!(text.len() as u64 <= KEPT_BYTES + CUT_MARK.len() as u64 + 8);
        assert!(text.starts_with(&[CUT_MARK, b"xxx"].concat()));
        assert!(text.ends_with(b"x\nthe reason\ngoes on\n"));
    }
}
