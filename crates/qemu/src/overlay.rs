//! Makes qcow2 overlays with QEMU itself, so that `qemu-img` need not be installed.
//!
//! A QEMU without a machine starts in some 30 ms and knows `blockdev-create`. The overlay's
//! header names no backing file: the command line joins the two when the machine starts, so an
//! image folder may move and a hostile header leads nowhere.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err::os::unix::fs::OpenOptionsExt;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use crate::discover::Qemu;
use crate::qmp::{Qmp, QmpError};
use airlock_process::{self as process, InheritedFds, RunAs, SpawnError, SpawnRequest, VmProcess};

/// How long making an overlay may take; it writes a few hundred kilobytes.
const TIMEOUT: Duration = Duration::from_secs(20);
const JOB: &str = "create";

/// Why there is no overlay.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// The size is no multiple of a sector, or zero.
    #[error("{virtual_bytes} bytes is no size for a disk")]
    BadSize {
        /// What was asked for.
        virtual_bytes: u64,
    },
    /// The file could not be made, most often because it is there already.
    #[error("cannot make {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No socket for QMP.
    #[error("cannot make a socket pair")]
    Socket(#[source] io::Error),
    /// QEMU did not start.
    #[error("cannot start QEMU to make {path}")]
    Start {
        /// The file.
        path: PathBuf,
        /// Why.
        source: SpawnError,
    },
    /// QEMU did not do as told.
    #[error("QEMU did not make {path}")]
    Qmp {
        /// The file.
        path: PathBuf,
        /// Why.
        source: QmpError,
    },
    /// QEMU tried and failed, for instance because the host's disk is full.
    #[error("QEMU could not write {path}: {reason}")]
    Job {
        /// The file.
        path: PathBuf,
        /// QEMU's words.
        reason: String,
    },
    /// It took too long.
    #[error("QEMU did not finish {path} within {TIMEOUT:?}")]
    Timeout {
        /// The file.
        path: PathBuf,
    },
}

/// Makes an empty overlay of `virtual_bytes` at `path` (0600), which must not exist yet.
///
/// On any failure, and when cancelled, `path` does not exist afterwards.
pub async fn create(
    qemu: &Qemu,
    path: &Path,
    virtual_bytes: u64,
    run_as: Option<RunAs>,
) -> Result<(), OverlayError> {
    if virtual_bytes == 0 || !virtual_bytes.is_multiple_of(512) {
        return Err(OverlayError::BadSize { virtual_bytes });
    }
    let file = fs_err::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|source| OverlayError::File {
            path: path.to_owned(),
            source,
        })?;
    let mut unfinished = RemoveOnDrop { path, armed: true };

    let (ours, theirs) = process::socket_pair().map_err(OverlayError::Socket)?;
    let mut inherited = InheritedFds::new();
    let file_fd = inherited.add(std::fs::File::from(file));
    let qmp_fd = inherited.add(theirs);
    let request = SpawnRequest {
        binary: qemu.path.clone(),
        argv: argv(file_fd, qmp_fd),
        inherited,
        run_as,
        log: None,
    };
    let start = |source| OverlayError::Start {
        path: path.to_owned(),
        source,
    };
    let mut process = process::spawn(request).map_err(start)?;
    let work = work(ours, path, virtual_bytes, &mut process);
    tokio::time::timeout(TIMEOUT, work)
        .await
        .map_err(|_elapsed| OverlayError::Timeout {
            path: path.to_owned(),
        })??;
    unfinished.armed = false;
    Ok(())
}

struct RemoveOnDrop<'a> {
    path: &'a Path,
    armed: bool,
}

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed
            && let Err(error) = fs_err::remove_file(self.path)
        {
            tracing::warn!(%error, "an unfinished overlay stays behind");
        }
    }
}

fn argv(file_fd: i32, qmp_fd: i32) -> Vec<std::ffi::OsString> {
    let file = format!("fd={file_fd},set=1");
    let qmp = format!("socket,id=qmp,fd={qmp_fd}");
    let mut words: Vec<std::ffi::OsString> = [
        "-machine",
        "none",
        "-nodefaults",
        "-no-user-config",
        "-S",
        "-display",
        "none",
        "-add-fd",
        &file,
        "-blockdev",
        "driver=file,node-name=file,filename=/dev/fdset/1,locking=off",
        "-chardev",
        &qmp,
        "-mon",
        "chardev=qmp,mode=control",
    ]
    .map(Into::into)
    .to_vec();
    if cfg!(target_os = "linux") {
        words.extend(crate::argv::SANDBOX.map(Into::into));
    }
    words
}

async fn work(
    socket: tokio::net::UnixStream,
    path: &Path,
    virtual_bytes: u64,
    process: &mut VmProcess,
) -> Result<(), OverlayError> {
    let failed = |source| OverlayError::Qmp {
        path: path.to_owned(),
        source,
    };
    let qmp = Qmp::connect(socket).await.map_err(failed)?;
    let mut events = qmp.events();
    let options = json!({ "driver": "qcow2", "file": "file", "size": virtual_bytes });
    qmp.execute(
        "blockdev-create",
        Some(json!({ "job-id": JOB, "options": options })),
    )
    .await
    .map_err(failed)?;
    loop {
        match events.recv().await {
            Ok(event) => {
                let data = &event.data;
                if event.name == "JOB_STATUS_CHANGE"
                    && data["id"] == JOB
                    && data["status"] == "concluded"
                {
                    break;
                }
            }
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => {
                return Err(failed(qmp.ended().unwrap_or(QmpError::Closed)));
            }
        }
    }
    let jobs = qmp.execute("query-jobs", None).await.map_err(failed)?;
    if let Some(reason) = jobs[0]["error"].as_str() {
        return Err(OverlayError::Job {
            path: path.to_owned(),
            reason: reason.to_owned(),
        });
    }
    // QEMU writes the header's last bytes when it closes the file, so wait for its end.
    qmp.quit().await.map_err(failed)?;
    let _status = process.wait().await;
    Ok(())
}
