//! Runs one host program as a part of a build: logged, cancellable, never outliving the build.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio_util::sync::CancellationToken;

use crate::host::find_tool;

/// How long a cancelled program may clean up before it is killed.
const GRACE: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// How soon a cancellation is seen.
const CANCEL_CHECK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Lines kept for the message of a failure; the log has all of them.
const TAIL_LINES: usize = 15;

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The build was cancelled; the program and its children are gone.
    #[error("cancelled")]
    Cancelled,
    /// The program cannot be started.
    #[error("cannot start {program}")]
    Start {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// Its output cannot be read or logged.
    #[error("lost the output of {program}")]
    Output {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// It ended with a failure.
    #[error("{program} failed ({status})\n{tail}")]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// The last lines it printed.
        tail: Tail,
    },
}

impl CommandError {
    /// Whether the program's last words say that a server could not be reached.
    pub fn is_network(&self) -> bool {
        self.tail_has(&[
            "Could not resolve",
            "Temporary failure resolving",
            "Could not connect",
            "Unable to connect",
            "Cannot initiate the connection",
            "Connection failed",
            "Connection timed out",
            "Failed to fetch",
            "Network is unreachable",
        ])
    }

    /// Whether the program's last words say that the disk is full.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Start { source, .. } | Self::Output { source, .. } => {
                source.kind() == io::ErrorKind::StorageFull
            }
            Self::Failed { .. } => self.tail_has(&[
                "No space left on device",
                "enough free space",
                "Could not allocate block in ext2",
            ]),
            Self::Cancelled => false,
        }
    }

    fn tail_has(&self, texts: &[&str]) -> bool {
        match self {
            Self::Failed { tail, .. } => tail
                .0
                .iter()
                .any(|line| texts.iter().any(|text| line.contains(text))),
            Self::Cancelled | Self::Start { .. } | Self::Output { .. } => false,
        }
    }
}

/// The last lines of a program's output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tail(Vec<String>);

impl Tail {
    fn push(&mut self, line: &str) {
        if self.0.len() == TAIL_LINES {
            self.0.remove(0);
        }
        self.0.push(line.to_owned());
    }
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

/// A program with its arguments, in a fixed environment.
#[derive(Debug)]
pub(crate) struct Tool {
    name: String,
    command: Command,
}

impl Tool {
    /// The program `name`, which dies with this process where `setpriv` can arrange that.
    pub(crate) fn new(name: &str) -> Self {
        Self::start_with(name, "TERM", &[])
    }

    /// The same in process and mount name spaces of its own; needs root.
    ///
    /// For a program whose children leave its process group, as those of apt do: with the first
    /// process of the name space all others and all mounts go.
    pub(crate) fn contained(name: &str) -> Self {
        let own = [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--",
        ];
        Self::start_with(name, "KILL", &own)
    }

    fn start_with(name: &str, death_signal: &str, wrapper: &[&str]) -> Self {
        let program = find_tool(name).unwrap_or_else(|| PathBuf::from(name));
        let mut words: Vec<OsString> = Vec::new();
        if let Some(setpriv) = find_tool("setpriv") {
            words.push(setpriv.into());
            words.extend(["--pdeathsig", death_signal, "--"].map(OsString::from));
        }
        words.extend(wrapper.iter().map(OsString::from));
        words.push(program.into());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .env("LC_ALL", "C.UTF-8")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("PATH", system_path())
            .stdin(Stdio::null());
        Self {
            name: name.to_owned(),
            command,
        }
    }

    /// Adds one argument.
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub(crate) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets one variable of the environment.
    pub(crate) fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Sets what it reads from its standard input; without this, nothing.
    pub(crate) fn input(mut self, input: std::fs::File) -> Self {
        self.command.stdin(input);
        self
    }

    /// Sets the folder it runs in.
    pub(crate) fn folder(mut self, folder: &std::path::Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Runs it and gives back what it printed to its standard output; the rest is logged.
    pub(crate) fn capture(
        self,
        log: &mut dyn io::Write,
        cancel: &CancellationToken,
    ) -> Result<Vec<u8>, CommandError> {
        let mut output = Vec::new();
        self.drive(log, cancel, Some(&mut output), &mut |_| {})?;
        Ok(output)
    }

    /// Runs it, logs all it prints and shows every line to `on_line`.
    pub(crate) fn run(
        self,
        log: &mut dyn io::Write,
        cancel: &CancellationToken,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<(), CommandError> {
        self.drive(log, cancel, None, on_line)
    }

    fn drive(
        mut self,
        log: &mut dyn io::Write,
        cancel: &CancellationToken,
        captured: Option<&mut Vec<u8>>,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<(), CommandError> {
        if cancel.is_cancelled() {
            return Err(CommandError::Cancelled);
        }
        let failed = |source| CommandError::Start {
            program: self.name.clone(),
            source,
        };
        let (talk, talk_end) = io::pipe().map_err(failed)?;
        let (data, data_end) = match captured {
            Some(captured) => io::pipe().map(|(data, end)| (Some((data, captured)), end)),
            None => talk_end.try_clone().map(|end| (None, end)),
        }
        .map_err(failed)?;
        self.command.stdout(data_end).stderr(talk_end);
        let args: Vec<_> = self
            .command
            .get_args()
            .map(|arg| arg.to_string_lossy())
            .collect();
        writeln!(log, "+ {}", args.join(" ")).map_err(failed)?;
        let mut group = Group::start(self.command, self.name)?;
        let mut streams = Streams {
            talk: Some(talk),
            data,
            lines: Lines::default(),
            buffer: vec![0; 64 << 10],
            talk_ready: false,
            data_ready: false,
        };
        let outcome = group.watch(&mut streams, log, cancel, on_line);
        if outcome.is_err() {
            group.kill(streams);
        }
        outcome
    }
}

/// The system's programs come before what a person has put in front of them, such as another
/// Python, because the packages' scripts expect the system's.
fn system_path() -> OsString {
    let mut path = OsString::from("/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin");
    if let Some(own) = std::env::var_os("PATH") {
        path.push(":");
        path.push(own);
    }
    path
}

/// A running program and all it started: they share a process group.
struct Group {
    child: Child,
    ended: OwnedFd,
    name: String,
}

impl Group {
    fn start(mut command: Command, name: String) -> Result<Self, CommandError> {
        let failed = |source| CommandError::Start {
            program: name.clone(),
            source,
        };
        let child = command.process_group(0).spawn().map_err(failed)?;
        let pid = Pid::from_child(&child);
        let ended = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| failed(errno.into()))?;
        Ok(Self { child, ended, name })
    }

    fn watch(
        &mut self,
        streams: &mut Streams<'_>,
        log: &mut dyn io::Write,
        cancel: &CancellationToken,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<(), CommandError> {
        let lost = |source| CommandError::Output {
            program: self.name.clone(),
            source,
        };
        let mut tail = Tail::default();
        loop {
            if cancel.is_cancelled() {
                return Err(CommandError::Cancelled);
            }
            let (ended, readable) = streams.wait(&self.ended).map_err(lost)?;
            streams
                .read(log, &mut |line| {
                    tail.push(line);
                    on_line(line);
                })
                .map_err(lost)?;
            // A daemon left behind may hold the pipes open for ever, so the end of the program
            // with nothing left to read is the end.
            if ended && !readable {
                let status = self.child.wait().map_err(lost)?;
                return if status.success() {
                    Ok(())
                } else {
                    Err(CommandError::Failed {
                        program: self.name.clone(),
                        status,
                        tail,
                    })
                };
            }
        }
    }

    /// Ends the whole group: politely, so that it can clean up, then for sure.
    ///
    /// Returns when the last process that could write to the output is gone, so that the folder it
    /// worked in can be removed.
    fn kill(&mut self, mut streams: Streams<'_>) {
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::TERM);
        let mut waiting = [PollFd::new(&self.ended, PollFlags::IN)];
        let _ = poll(&mut waiting, Some(&GRACE));
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
        let deadline = Instant::now() + Duration::from_secs(GRACE.tv_sec.unsigned_abs());
        while let (Some(talk), true) = (&mut streams.talk, Instant::now() < deadline) {
            let mut waiting = [PollFd::new(&*talk, PollFlags::IN)];
            let ready = poll(&mut waiting, Some(&CANCEL_CHECK)).is_ok_and(|ready| ready > 0);
            if ready && talk.read(&mut streams.buffer).unwrap_or(0) == 0 {
                streams.talk = None;
            }
        }
    }
}

/// The read ends of a program's output.
struct Streams<'c> {
    /// What it says: logged, and cut into lines.
    talk: Option<io::PipeReader>,
    /// What it makes, where the two are told apart.
    data: Option<(io::PipeReader, &'c mut Vec<u8>)>,
    lines: Lines,
    buffer: Vec<u8>,
    talk_ready: bool,
    data_ready: bool,
}

impl Streams<'_> {
    /// Waits for output, the program's end or the time to look for a cancellation.
    fn wait(&mut self, ended: &OwnedFd) -> io::Result<(bool, bool)> {
        let mut waiting = vec![PollFd::new(ended, PollFlags::IN)];
        waiting.extend(
            self.talk
                .as_ref()
                .map(|talk| PollFd::new(talk, PollFlags::IN)),
        );
        waiting.extend(
            self.data
                .as_ref()
                .map(|(data, _)| PollFd::new(data, PollFlags::IN)),
        );
        match poll(&mut waiting, Some(&CANCEL_CHECK)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready: Vec<bool> = waiting.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut rest = ready[1..].iter().copied();
        self.talk_ready = self.talk.is_some() && rest.next().unwrap_or_default();
        self.data_ready = self.data.is_some() && rest.next().unwrap_or_default();
        Ok((ready[0], self.talk_ready || self.data_ready))
    }

    fn read(&mut self, log: &mut dyn io::Write, on_line: &mut dyn FnMut(&str)) -> io::Result<()> {
        if let (true, Some(talk)) = (self.talk_ready, &mut self.talk) {
            let bytes = talk.read(&mut self.buffer)?;
            log.write_all(&self.buffer[..bytes])?;
            self.lines.feed(&self.buffer[..bytes], on_line);
            if bytes == 0 {
                self.lines.end(on_line);
                self.talk = None;
            }
        }
        if let (true, Some((data, captured))) = (self.data_ready, &mut self.data) {
            let bytes = data.read(&mut self.buffer)?;
            captured.extend_from_slice(&self.buffer[..bytes]);
            if bytes == 0 {
                self.data = None;
            }
        }
        Ok(())
    }
}

/// Cuts a stream of bytes into lines, at line feeds and at the carriage returns of progress bars.
#[derive(Default)]
struct Lines {
    partial: Vec<u8>,
}

impl Lines {
    fn feed(&mut self, bytes: &[u8], on_line: &mut dyn FnMut(&str)) {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            self.partial.extend_from_slice(piece);
            if matches!(piece.last(), Some(b'\n' | b'\r')) {
                self.end(on_line);
            }
        }
    }

    fn end(&mut self, on_line: &mut dyn FnMut(&str)) {
        let line = String::from_utf8_lossy(&self.partial);
        let line = line.trim_end();
        if !line.is_empty() {
            on_line(line);
        }
        self.partial.clear();
    }
}

#[cfg(test)]
mod tests;
