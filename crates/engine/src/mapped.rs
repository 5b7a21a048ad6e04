//! Work on files of many owners for an ordinary user: done by a process of our own inside a user
//! namespace, in which that user's subordinate ids can be given to files and taken away.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use airlock_image::{Catalog, ImageError, OnProgress, Owners, Progress, Tree};
use airlock_model::{HomePaths, ImageName};
use airlock_oci::minder::plan::{receive, send};
use airlock_oci::{Ids, ids, userns};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::launch::own_program;
use crate::{EngineError, ErrorKind};

/// The word by which the process is started.
pub(crate) const WORD: &str = "mapped";

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Operation {
    /// Unpack an image's root file system.
    Unpack {
        home: PathBuf,
        image: ImageName,
        owners: Owners,
    },
    /// Remove a folder and everything in it.
    Remove { path: PathBuf },
}

/// What the process says.
#[derive(Debug, Serialize, Deserialize)]
enum Said {
    WantsIds,
    Progress(Progress),
    Unpacked(Tree),
    Removed,
    Failed {
        message: String,
        hint: Option<String>,
        disk_is_full: bool,
    },
}

/// Its answer.
#[derive(Debug, Serialize, Deserialize)]
struct Mapped {}

/// Why the work was not done.
#[derive(Debug, thiserror::Error)]
pub enum MappedError {
    /// The process could not be started or does not answer.
    #[error("cannot work on files of other owners")]
    Process(#[source] io::Error),
    /// The ids could not be mapped.
    #[error("cannot work on files of other owners")]
    Map(#[source] ids::MapError),
    /// The work itself failed.
    #[error("{message}")]
    Failed {
        /// What happened.
        message: String,
        /// What to do about it.
        hint: Option<String>,
        /// The host's disk is full.
        disk_is_full: bool,
    },
    /// The caller gave up.
    #[error("cancelled")]
    Cancelled,
}

impl MappedError {
    /// What a caller can act on.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Process(_) => ErrorKind::Failure,
            Self::Map(_) => ErrorKind::Unsupported,
            Self::Failed { disk_is_full, .. } => {
                if *disk_is_full {
                    ErrorKind::HostDiskFull
                } else {
                    ErrorKind::Failure
                }
            }
            Self::Cancelled => ErrorKind::Cancelled,
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Process(_) | Self::Cancelled => None,
            Self::Map(error) => Some(error.hint().to_owned()),
            Self::Failed { hint, .. } => hint.clone(),
        }
    }
}

/// Gives the image's root file system as a folder for Spaces with `ids`. Blocks.
pub(crate) fn unpack(
    home: &HomePaths,
    image: &ImageName,
    ids: Ids,
    on_progress: &OnProgress<'_>,
    cancel: &CancellationToken,
) -> Result<Tree, EngineError> {
    let catalog = Catalog::new(home);
    let shifted = |base| Owners::Shifted {
        uid_base: base,
        gid_base: base,
    };
    match (ids, ids.file_base()) {
        (Ids::Root { .. }, Some(base)) => {
            Ok(catalog.ensure_tree(image, shifted(base), on_progress, cancel)?)
        }
        (Ids::Subordinate { .. }, Some(base)) => {
            catalog.ensure_tree_source(image, on_progress, cancel)?;
            let operation = Operation::Unpack {
                home: home.root().to_owned(),
                image: image.clone(),
                owners: shifted(base),
            };
            match run(&operation, ids, on_progress, cancel)? {
                Some(tree) => Ok(tree),
                None => Err(MappedError::Process(io::ErrorKind::InvalidData.into()).into()),
            }
        }
        (Ids::Single | Ids::Root { .. } | Ids::Subordinate { .. }, _) => {
            Ok(catalog.ensure_tree(image, Owners::Caller, on_progress, cancel)?)
        }
    }
}

/// Removes a folder and everything in it, whoever of a Space's ids owns it. Blocks.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let denied = match fs_err::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => error,
        done => return done,
    };
    let ids = Ids::choose();
    if !ids.needs_user_namespace() {
        return Err(denied);
    }
    let operation = Operation::Remove {
        path: path.to_owned(),
    };
    let never = CancellationToken::new();
    match run(&operation, ids, &|_| {}, &never) {
        Ok(_) => Ok(()),
        Err(MappedError::Process(error)) => Err(error),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Runs the process for `operation` to its end.
fn run(
    operation: &Operation,
    ids: Ids,
    on_progress: &OnProgress<'_>,
    cancel: &CancellationToken,
) -> Result<Option<Tree>, MappedError> {
    let program = own_program().map_err(|error| MappedError::Process(io::Error::other(error)))?;
    let (ours, theirs) = UnixStream::pair().map_err(MappedError::Process)?;
    let mut child = Command::new(program)
        .arg(WORD)
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(MappedError::Process)?;
    let done = converse(&ours, operation, child.id(), ids, on_progress, cancel);
    // Without the socket it has nothing to say and ends; with an error it shall.
    drop(ours);
    if done.is_err() {
        let _ = child.kill();
    }
    let _ = child.wait();
    done
}

fn converse(
    socket: &UnixStream,
    operation: &Operation,
    pid: u32,
    ids: Ids,
    on_progress: &OnProgress<'_>,
    cancel: &CancellationToken,
) -> Result<Option<Tree>, MappedError> {
    send(socket, operation, None).map_err(MappedError::Process)?;
    loop {
        match receive::<Said>(socket).map_err(MappedError::Process)? {
            Said::WantsIds => {
                ids::map(pid, &ids).map_err(MappedError::Map)?;
                send(socket, &Mapped {}, None).map_err(MappedError::Process)?;
            }
            Said::Progress(progress) => {
                on_progress(progress);
                if cancel.is_cancelled() {
                    return Err(MappedError::Cancelled);
                }
            }
            Said::Unpacked(tree) => return Ok(Some(tree)),
            Said::Removed => return Ok(None),
            Said::Failed {
                message,
                hint,
                disk_is_full,
            } => {
                return Err(MappedError::Failed {
                    message,
                    hint,
                    disk_is_full,
                });
            }
        }
    }
}

/// The program of the process; its standard input is the socket.
pub(crate) fn main() -> ExitCode {
    let Ok(socket) = rustix::stdio::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    let socket = UnixStream::from(socket);
    let said = work(&socket).unwrap_or_else(|failed| failed);
    match send(&socket, &said, None) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn work(socket: &UnixStream) -> Result<Said, Said> {
    let failed = |error: &dyn std::error::Error, hint: Option<String>| {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            message = format!("{message}: {error}");
            source = error.source();
        }
        Said::Failed {
            message,
            hint,
            disk_is_full: false,
        }
    };
    let operation: Operation = receive(socket).map_err(|error| failed(&error, None))?;
    userns::enter(|| {
        send(socket, &Said::WantsIds, None)?;
        receive::<Mapped>(socket).map(|Mapped {}| ())
    })
    .map_err(|error| failed(&error, Some(error.hint().to_owned())))?;
    match operation {
        Operation::Unpack {
            home,
            image,
            owners,
        } => {
            let catalog = Catalog::new(&HomePaths::new(home));
            let report = |progress| {
                // Nobody listens any more only when the caller is gone, and then this ends too.
                let _ = send(socket, &Said::Progress(progress), None);
            };
            let tree = catalog.ensure_tree(&image, owners, &report, &CancellationToken::new());
            tree.map(Said::Unpacked).map_err(|error| {
                let hint = ImageError::hint(&error);
                match failed(&error, hint) {
                    Said::Failed { message, hint, .. } => Said::Failed {
                        message,
                        hint,
                        disk_is_full: error.is_disk_full(),
                    },
                    other => other,
                }
            })
        }
        Operation::Remove { path } => match fs_err::remove_dir_all(&path) {
            Ok(()) => Ok(Said::Removed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Said::Removed),
            Err(error) => Err(failed(&error, None)),
        },
    }
}
