//! What a build says while it runs.

use std::fmt;

use airlock_model::ImageName;

/// A step of a build, in the order in which they come.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum Phase {
    /// Another build of the same thing is under way; its result will be used.
    Waiting,
    /// Reading the package lists.
    Resolving,
    /// Downloading packages.
    Fetching,
    /// Unpacking packages.
    Unpacking,
    /// Running the packages' own set-up.
    Configuring,
    /// Making the root file system out of the folder.
    MakingFileSystem,
    /// Writing the initramfs.
    WritingInitramfs,
    /// Hashing, syncing and renaming.
    Publishing,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "waiting for another build",
            Self::Resolving => "resolving",
            Self::Fetching => "fetching",
            Self::Unpacking => "unpacking",
            Self::Configuring => "configuring",
            Self::MakingFileSystem => "making file system",
            Self::WritingInitramfs => "writing initramfs",
            Self::Publishing => "publishing",
        })
    }
}

/// One step forward of a build.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Progress {
    /// The image being built.
    pub image: ImageName,
    /// The step.
    pub phase: Phase,
    /// How much of the step is done, 0 to 1, where that can be known.
    pub fraction: Option<f32>,
    /// What it is about, such as a package's name; may be empty.
    pub detail: String,
}
