//! The root file system of an imported image for VM Spaces, made when the first one needs it.

use std::path::Path;

use fs_err as fs;

use crate::error::BuildError;
use crate::host::{MissingTools, is_root};
use crate::import::Imported;
use crate::job::Job;
use crate::progress::Phase;
use crate::rootfs::{self, Root};
use crate::tree::owner::{Ownership, RecordedOwner};
use crate::tree::remove;
use crate::tree::writer::TreeWriter;

/// Raised when the same layers give another root file system than before.
pub(crate) const RECIPE: u32 = 1;

/// Makes an ext4 file of the layers in `dir`, with the owners that the image says.
pub(crate) fn build(job: &Job<'_>, imported: &Imported, dir: &Path) -> Result<Root, BuildError> {
    let tools: &[&str] = if is_root() {
        &["mke2fs"]
    } else {
        &["mke2fs", "fakeroot"]
    };
    MissingTools::check_tools(&job.host, tools)?;
    let work = job.dir.folder("root")?;
    let tree = Unpacked(job.dir.folder("tree")?);
    let ownership = if is_root() {
        Ownership::Exact
    } else {
        Ownership::Recorded
    };
    let mut writer = TreeWriter::new(&tree.0, ownership, job.cancel)?;
    let layers = imported.layers(dir);
    for (number, (file, layer)) in layers.iter().enumerate() {
        let detail = format!("layer {} of {}", number + 1, layers.len());
        job.report(Phase::Unpacking, None, &detail);
        imported.layer(file, layer).apply(&mut writer, &|_| {})?;
    }
    let (_, recorded) = writer.finish()?;
    let owners = work.join("owners");
    if ownership.is_recorded() {
        let lines: String = recorded.iter().map(RecordedOwner::line).collect();
        fs::write(&owners, lines)?;
    }
    let file = work.join("root.ext4");
    let owners = ownership.is_recorded().then_some(owners.as_path());
    rootfs::make_file_system(job, &tree.0, &file, owners)?;
    Ok(Root {
        file,
        suite: imported.content.clone(),
    })
}

/// A tree in the build folder, which may have folders that only this removal opens.
struct Unpacked(std::path::PathBuf);

impl Drop for Unpacked {
    fn drop(&mut self) {
        if let Err(error) = remove::tree(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "a tree stays behind");
        }
    }
}
