//! Where Airlock keeps its state: paths only, nothing here touches the disk.

use std::path::{Path, PathBuf};

use crate::name::{ImageName, SpaceName};

/// How the folder of a Space is called while it is being removed.
pub const TRASH_PREFIX: &str = ".trash-";

/// The layout of `$AIRLOCK_HOME`.
///
/// ```text
/// spaces/<name>/{spec.json,state.json,lock,keeper.sock,keeper.log,console.log}
/// spaces/<name>/{overlay.qcow2 | upper/,work/,guestd.sock}
/// images/<name>/…        finished images
/// cache/                 downloads, accelerator verdicts, builds under way
/// config.toml
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomePaths {
    root: PathBuf,
}

impl HomePaths {
    /// The layout beneath `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder with one folder for each Space.
    pub fn spaces(&self) -> PathBuf {
        self.root.join("spaces")
    }

    /// A folder of [`HomePaths::spaces`] for what is being removed, told apart by `mark`. No Space
    /// can have its name.
    pub fn trash(&self, mark: &str) -> PathBuf {
        self.spaces().join(format!("{TRASH_PREFIX}{mark}"))
    }

    /// The files of one Space.
    pub fn space(&self, name: &SpaceName) -> SpacePaths {
        SpacePaths {
            dir: self.spaces().join(name.as_str()),
        }
    }

    /// The folder with one folder for each finished image.
    pub fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    /// The folder of one finished image.
    pub fn image(&self, name: &ImageName) -> PathBuf {
        self.images().join(name.as_str())
    }

    /// What can be made again: downloads, verdicts, builds under way.
    pub fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// The person's settings.
    pub fn config(&self) -> PathBuf {
        self.root.join("config.toml")
    }
}

/// The files of one Space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpacePaths {
    dir: PathBuf,
}

impl SpacePaths {
    /// The Space's private folder (0700).
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What was asked for: [`crate::SpaceSpec`] as JSON.
    pub fn spec(&self) -> PathBuf {
        self.dir.join("spec.json")
    }

    /// What the keeper last wrote of the Space's state.
    pub fn state(&self) -> PathBuf {
        self.dir.join("state.json")
    }

    /// Held with an exclusive lock by the living keeper.
    pub fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// The keeper's socket (0600).
    pub fn keeper_socket(&self) -> PathBuf {
        self.dir.join("keeper.sock")
    }

    /// What the keeper has to say.
    pub fn keeper_log(&self) -> PathBuf {
        self.dir.join("keeper.log")
    }

    /// What the Space's kernel and guestd print.
    pub fn console_log(&self) -> PathBuf {
        self.dir.join("console.log")
    }

    /// The own disk of a VM Space, an overlay over the image's.
    pub fn overlay(&self) -> PathBuf {
        self.dir.join("overlay.qcow2")
    }

    /// What a container Space changed of its image's files.
    pub fn upper(&self) -> PathBuf {
        self.dir.join("upper")
    }

    /// A folder that overlayfs needs beside [`SpacePaths::upper`].
    pub fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    /// The socket on which guestd of a container Space listens.
    pub fn guest_socket(&self) -> PathBuf {
        self.dir.join("guestd.sock")
    }
}
