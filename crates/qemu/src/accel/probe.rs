//! Boots a kernel once to see whether an accelerator runs it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::{Backend, ProbeContext, ProbeError, Verdict};
use crate::argv::{self, Source, VmConfig};
use airlock_process::{self as process, InheritedFds, SpawnRequest};

/// Memory of the probe's machine: a stock kernel needs no more to print its first line.
const MEMORY_MB: u64 = 256;
/// Console bytes kept while looking for the marker.
const CONSOLE_BYTES: usize = 256 * 1024;
/// Bytes of QEMU's complaints that are read.
const COMPLAINT_BYTES: u64 = 4096;

enum Outcome {
    Marker,
    /// The console closed without the marker: QEMU ended.
    Ended,
    Late,
}

/// Boots the context's kernel on `backend`. QEMU is gone when this returns or is cancelled.
pub(super) async fn run(
    backend: Backend,
    context: &ProbeContext<'_>,
) -> Result<Verdict, ProbeError> {
    let (console, console_writer) = io::pipe().map_err(|source| open_error("a pipe", source))?;
    let (_qmp, qmp_theirs) =
        process::socket_pair().map_err(|source| open_error("a socket pair", source))?;
    let mut complaints =
        tempfile::tempfile().map_err(|source| open_error("a temporary file", source))?;

    let mut inherited = InheritedFds::new();
    let kernel = Source::Fd(inherited.add(open(context.kernel)?));
    let initrd = Source::Fd(inherited.add(open(context.initrd)?));
    let config = VmConfig {
        arch: context.qemu.arch,
        accel: backend,
        cpus: 1,
        memory_mb: MEMORY_MB,
        kernel,
        initrd,
        cmdline: format!("console={} panic=-1", context.qemu.arch.console_device()),
        lane: None,
        root: None,
        control: None,
        data: None,
        qmp: inherited.add(qmp_theirs),
        console: inherited.add(console_writer),
        sandbox: cfg!(target_os = "linux"),
    };
    let log = complaints
        .try_clone()
        .map_err(|source| open_error("a temporary file", source))?;
    let mut process = process::spawn(SpawnRequest {
        binary: context.qemu.path.clone(),
        argv: argv::build(&config),
        inherited,
        run_as: context.run_as,
        log: Some(log),
    })?;
    let started = Instant::now();
    let watched = watch(console, context).await;
    // It may spin in the kernel's arms, so nothing gentler than SIGKILL.
    process.kill().await.map_err(ProbeError::Watch)?;
    let elapsed = started.elapsed().as_secs_f64();
    Ok(match watched.map_err(ProbeError::Watch)? {
        Outcome::Marker => Verdict {
            works: true,
            reason: format!("proven by a boot: the kernel spoke after {elapsed:.1} s"),
        },
        Outcome::Ended => Verdict {
            works: false,
            reason: complaint(&mut complaints),
        },
        Outcome::Late => Verdict {
            works: false,
            reason: format!(
                "a guest kernel printed nothing within {:?}",
                context.deadline
            ),
        },
    })
}

fn open_error(what: impl AsRef<Path>, source: io::Error) -> ProbeError {
    ProbeError::Open {
        what: what.as_ref().to_owned(),
        source,
    }
}

fn open(path: &Path) -> Result<File, ProbeError> {
    File::open(path).map_err(|source| open_error(path, source))
}

async fn watch(console: io::PipeReader, context: &ProbeContext<'_>) -> io::Result<Outcome> {
    let console = pipe::Receiver::from_owned_fd(OwnedFd::from(console))?;
    match tokio::time::timeout(context.deadline, find(console, context.marker.as_bytes())).await {
        Ok(Ok(true)) => Ok(Outcome::Marker),
        Ok(Ok(false)) => Ok(Outcome::Ended),
        Ok(Err(error)) => Err(error),
        Err(_elapsed) => Ok(Outcome::Late),
    }
}

/// Whether `marker` appears before the stream ends.
async fn find(mut console: pipe::Receiver, marker: &[u8]) -> io::Result<bool> {
    let mut seen = Vec::with_capacity(4096);
    loop {
        if console.read_buf(&mut seen).await? == 0 {
            return Ok(false);
        }
        if seen
            .windows(marker.len().max(1))
            .any(|window| window == marker)
        {
            return Ok(true);
        }
        if seen.len() > CONSOLE_BYTES {
            // Keep just enough for a marker that spans two reads.
            seen.drain(..seen.len() - marker.len());
        }
    }
}

/// QEMU's last words.
fn complaint(log: &mut File) -> String {
    let mut bytes = Vec::new();
    let read =
        io::Seek::rewind(log).and_then(|()| log.take(COMPLAINT_BYTES).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    match (read, text.lines().find(|line| !line.trim().is_empty())) {
        (Ok(_), Some(line)) => {
            // `qemu-system-x86_64: ` says nothing new.
            let words = line
                .split_once(": ")
                .map_or(line, |(_program, words)| words);
            format!("QEMU ended at once: {words}")
        }
        (Ok(_), None) | (Err(_), _) => "QEMU ended at once and did not say why".to_owned(),
    }
}
