//! What every step of a build needs: where to work, whom to tell, when to stop.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};

use airlock_model::{HomePaths, ImageName};
use fs_err as fs;
use tokio_util::sync::CancellationToken;

use crate::command::Tool;
use crate::error::BuildError;
use crate::host::Host;
use crate::progress::{Phase, Progress};
use crate::workdir::BuildDir;

/// One run of a build.
pub(crate) struct Job<'a> {
    pub(crate) image: &'a ImageName,
    pub(crate) host: Host,
    pub(crate) cache: PathBuf,
    pub(crate) dir: BuildDir,
    pub(crate) cancel: &'a CancellationToken,
    on_progress: &'a (dyn Fn(Progress) + Send + Sync),
    log: RefCell<fs::File>,
    next_folder: Cell<u32>,
}

impl<'a> Job<'a> {
    /// Makes the build folder and an empty log.
    pub(crate) fn start(
        home: &HomePaths,
        image: &'a ImageName,
        on_progress: &'a (dyn Fn(Progress) + Send + Sync),
        cancel: &'a CancellationToken,
    ) -> Result<Self, BuildError> {
        let cache = home.cache();
        let dir = BuildDir::make(&cache, cancel)?;
        let log = RefCell::new(fs::File::create(log_path(home, image))?);
        Ok(Self {
            image,
            host: Host::detect(),
            cache,
            dir,
            cancel,
            on_progress,
            log,
            next_folder: Cell::new(0),
        })
    }

    /// Says how far the build is.
    pub(crate) fn report(&self, phase: Phase, fraction: Option<f32>, detail: &str) {
        let fraction = fraction.map(|fraction| fraction.clamp(0.0, 1.0));
        let detail = detail.to_owned();
        (self.on_progress)(Progress {
            image: self.image.clone(),
            phase,
            fraction,
            detail,
        });
    }

    /// A new folder in the build folder, whose name begins with `name`.
    pub(crate) fn fresh_folder(&self, name: &str) -> Result<PathBuf, BuildError> {
        let number = self.next_folder.get();
        self.next_folder.set(number + 1);
        Ok(self.dir.folder(&format!("{name}-{number}"))?)
    }

    /// Fails if the build was cancelled; long loops call it.
    pub(crate) fn check_cancelled(&self) -> Result<(), BuildError> {
        if self.cancel.is_cancelled() {
            Err(BuildError::Cancelled)
        } else {
            Ok(())
        }
    }

    /// Runs a program and shows its lines to `on_line`.
    pub(crate) fn run(&self, tool: Tool, on_line: &mut dyn FnMut(&str)) -> Result<(), BuildError> {
        Ok(tool.run(&mut *self.log.borrow_mut(), self.cancel, on_line)?)
    }

    /// Runs a program and gives back what it made on its standard output.
    pub(crate) fn capture(&self, tool: Tool) -> Result<Vec<u8>, BuildError> {
        Ok(tool.capture(&mut *self.log.borrow_mut(), self.cancel)?)
    }
}

/// The log of an image's last build.
pub(crate) fn log_path(home: &HomePaths, image: &ImageName) -> PathBuf {
    home.cache().join(format!("build-{image}.log"))
}

/// Makes `link` another name of `file`, or a copy where that cannot be.
pub(crate) fn link_or_copy(file: &Path, link: &Path) -> std::io::Result<()> {
    fs::hard_link(file, link).or_else(|_| fs::copy(file, link).map(drop))
}
