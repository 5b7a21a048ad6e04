//! One command: started, pumped, ended.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use airlock_wire::cua::v1::{ProcessConfig, ProcessInfo, ProcessState};
use airlock_wire::{Fault, FaultKind};
use bytes::Bytes;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, waitid};
use rustix::termios::Winsize;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::end;
use super::group::{Cgroup, Group};
use super::input::Input;
use super::launch::{Launch, StartFailure};
use super::output::{Output, Source};
use super::pipe::{self, End};
use crate::convert::{now, timestamp};
use crate::sys::spawn::{Plan, Spawned, spawn};
use crate::sys::watch::watched;

/// How long a command that shall end gets between the polite signal and the other one.
const TERM_GRACE: Duration = Duration::from_secs(1);
/// How long output may pause before a job in the background is left to itself.
const DRAIN_IDLE: Duration = Duration::from_millis(50);
/// How long a job in the background may print on after its command has ended.
const DRAIN_MOST: Duration = Duration::from_secs(1);
/// Output kept after the end for whoever lost the connection just then.
const KEEP_AFTER_END: Duration = Duration::from_secs(60);
/// Tail of the output that a record of an idempotent start keeps, in bytes.
pub(super) const RECORD_TAIL_BYTES: usize = 64 * 1024;
/// A read of this many bytes is tried first; most commands print less.
const SMALL_READ_BYTES: usize = 4 * 1024;
/// Bytes of one read of a command that prints a lot, as many as a pipe holds.
const READ_BYTES: usize = 64 * 1024;

/// How to start a command, besides its configuration.
#[derive(Debug, Default)]
pub(super) struct StartOptions {
    pub(super) tag: String,
    pub(super) stdin: bool,
    pub(super) pty: Option<Winsize>,
    pub(super) scrollback_bytes: usize,
    pub(super) request_id: String,
    pub(super) epoch: u64,
    pub(super) timeout: Option<Duration>,
    /// Its children shall not outlive it when it is stopped.
    pub(super) contained: bool,
}

/// Why a command is being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    TimedOut,
    Asked,
}

/// A command that was started, whether it still runs or not.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) pid: u32,
    pub(super) config: ProcessConfig,
    pub(super) options: StartOptions,
    pub(super) started: Duration,
    pub(super) output: Arc<Output>,
    pub(super) input: Arc<Input>,
    has_terminal: bool,
    /// Present until the last program has closed it.
    terminal: Mutex<Option<Arc<End>>>,
    /// Present until it is reaped; only then does its number mean somebody else.
    group: Mutex<Option<Group>>,
    stop: watch::Sender<Option<Stop>>,
    over: CancellationToken,
}

impl Command {
    /// Starts a command. Its tasks mind it from then on.
    pub(super) async fn start(
        config: ProcessConfig,
        launch: Launch,
        options: StartOptions,
        cgroups: Option<&Path>,
    ) -> Result<Arc<Self>, StartFailure> {
        let over = CancellationToken::new();
        let wiring = Wiring::new(&options, &over)
            .map_err(|error| StartFailure::Fault(Fault::from_io("pipes for a command", &error)))?;
        let Wiring {
            theirs,
            ours,
            input,
            terminal,
        } = wiring;
        let cgroup = if options.contained {
            cgroups.and_then(|parent| Cgroup::take(parent).ok())
        } else {
            None
        };
        let has_terminal = terminal.is_some();
        // Reading a program from a slow disk must not stop the other calls.
        let started = tokio::task::spawn_blocking(move || {
            let spawned = spawn(&Plan {
                programs: &launch.programs,
                args: &launch.args,
                env: &launch.env,
                cwd: &launch.cwd,
                stdio: theirs.each_ref().map(|fd| fd.as_fd()),
                terminal: has_terminal,
                ids: launch.ids.as_ref(),
                cgroup: cgroup.as_ref().and_then(Cgroup::entrance),
            });
            spawned
                .map(|spawned| (spawned, cgroup))
                .map_err(|failure| launch.explain(failure))
        });
        let (Spawned { pid, pidfd }, cgroup) = started.await.map_err(|_| {
            StartFailure::Fault(Fault::new(
                FaultKind::Internal,
                "starting the command panicked",
            ))
        })??;
        let exit = watched(pidfd, Interest::READABLE).map_err(|error| {
            // Nobody could mind it: rather no command than a lost one.
            Group::new(pid, None).kill(&[]);
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            StartFailure::Fault(Fault::from_io("the command's descriptor", &error))
        })?;
        let hashed = !options.request_id.is_empty();
        let command = Arc::new(Self {
            pid: pid.as_raw_nonzero().get().cast_unsigned(),
            config,
            started: now(),
            output: Arc::new(Output::new(options.scrollback_bytes, hashed)),
            options,
            input,
            has_terminal,
            terminal: Mutex::new(terminal),
            group: Mutex::new(Some(Group::new(pid, cgroup))),
            stop: watch::Sender::new(None),
            over,
        });
        tokio::spawn(Arc::clone(&command).mind(exit, ours));
        Ok(command)
    }

    fn group(&self) -> MutexGuard<'_, Option<Group>> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn terminal(&self) -> MutexGuard<'_, Option<Arc<End>>> {
        self.terminal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has not ended.
    pub(super) fn is_running(&self) -> bool {
        !self.over.is_cancelled()
    }

    /// Waits for the end.
    pub(super) async fn ended(&self) {
        self.over.cancelled().await;
    }

    /// Asks it to end, politely first; everything it started goes with it.
    pub(super) fn stop(&self, stop: Stop) {
        self.stop.send_if_modified(|asked| {
            let first = asked.is_none();
            asked.get_or_insert(stop);
            first
        });
    }

    /// Sends `signal` to its process group or to itself; says whether it still runs.
    pub(super) fn signal(&self, signal: Signal, whole_group: bool) -> bool {
        match (&*self.group(), Pid::from_raw(self.pid.cast_signed())) {
            (Some(group), _) if whole_group => group.signal(signal),
            (Some(_), Some(pid)) => rustix::process::kill_process(pid, signal).is_ok(),
            (Some(_), None) | (None, _) => false,
        }
    }

    /// Sets the size of its terminal.
    pub(super) fn resize(&self, size: Winsize) -> Result<(), Fault> {
        let Some(terminal) = self.terminal().clone() else {
            return Err(Fault::new(
                FaultKind::InvalidArgument,
                "the command has no terminal",
            ));
        };
        terminal
            .resize(size)
            .map_err(|error| Fault::from_io("the terminal", &error))
    }

    pub(super) fn info(&self) -> ProcessInfo {
        let extent = self.output.extent();
        let end = self.output.end();
        let state = if end.is_some() {
            ProcessState::Exited
        } else {
            ProcessState::Running
        };
        ProcessInfo {
            pid: self.pid,
            tag: self.options.tag.clone(),
            config: Some(self.config.clone()),
            pty: self.has_terminal,
            state: state.into(),
            end,
            started_at: Some(timestamp(self.started)),
            scrollback_start_offset: extent.start_offset,
            output_end_offset: extent.end_offset,
            attached_clients: extent.readers as u32,
        }
    }

    /// Minds the command from its start to the end of its output.
    async fn mind(self: Arc<Self>, exit: AsyncFd<OwnedFd>, ends: Vec<(Source, Arc<End>)>) {
        let mut pumps = Pumps::start(&self.output, &ends);
        let stopped = self.wait(&exit).await;
        let status = self.reap(exit.get_ref());
        self.over.cancel();
        pumps.drain(&self.output, &ends).await;
        let mut end = status.map_or_else(end::lost, |status| end::of_status(&status));
        end.timed_out = stopped == Some(Stop::TimedOut);
        end.ended_at = Some(timestamp(now()));
        self.output.finish(end);
        // A job in the background may hold the pipes for long; it shall neither block nor be
        // ended by a closed pipe.
        pumps.finish().await;
        drop((ends, exit));
        self.input.release().await;
        self.terminal().take();
        tokio::time::sleep(KEEP_AFTER_END).await;
        let keep = if self.options.request_id.is_empty() {
            0
        } else {
            RECORD_TAIL_BYTES
        };
        self.output.trim(keep);
    }

    /// Waits until it has ended, and makes it end when its time is up or somebody asks.
    async fn wait(&self, exit: &AsyncFd<OwnedFd>) -> Option<Stop> {
        let deadline = self
            .options
            .timeout
            .and_then(|timeout| Instant::now().checked_add(timeout));
        let stop = tokio::select! {
            biased;
            _ = exit.readable() => return None,
            () = sleep_until(deadline) => Stop::TimedOut,
            stop = self.asked_to_stop() => stop,
        };
        let descendants = self
            .group()
            .as_ref()
            .map(Group::descendants)
            .unwrap_or_default();
        self.signal(Signal::TERM, true);
        // A stopped process would not notice.
        self.signal(Signal::CONT, true);
        let _ = tokio::time::timeout(TERM_GRACE, exit.readable()).await;
        self.kill(&descendants);
        let _ = exit.readable().await;
        Some(stop)
    }

    fn kill(&self, descendants: &[super::group::Descendant]) {
        if let Some(group) = &*self.group() {
            group.kill(descendants);
        }
    }

    async fn asked_to_stop(&self) -> Stop {
        let mut asked = self.stop.subscribe();
        match asked
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|asked| *asked)
        {
            Some(stop) => stop,
            // The sender lives as long as this command.
            None => std::future::pending().await,
        }
    }

    /// Takes the exit status; nobody can signal it from here on.
    fn reap(&self, pidfd: &OwnedFd) -> Option<WaitIdStatus> {
        let mut group = self.group();
        *group = None;
        waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED)
            .ok()
            .flatten()
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The pipes of a command, or its terminal.
struct Wiring {
    theirs: [OwnedFd; 3],
    ours: Vec<(Source, Arc<End>)>,
    input: Arc<Input>,
    terminal: Option<Arc<End>>,
}

impl Wiring {
    fn new(options: &StartOptions, over: &CancellationToken) -> io::Result<Self> {
        if let Some(size) = options.pty {
            let (end, theirs) = pipe::terminal(size)?;
            let end = Arc::new(end);
            return Ok(Self {
                theirs: [theirs.try_clone()?, theirs.try_clone()?, theirs],
                ours: vec![(Source::Pty, Arc::clone(&end))],
                input: Input::terminal(Arc::clone(&end), over.clone()),
                terminal: Some(end),
            });
        }
        let (stdout, their_stdout) = pipe::readable()?;
        let (stderr, their_stderr) = pipe::readable()?;
        let (input, their_stdin) = if options.stdin {
            let (stdin, theirs) = pipe::writable()?;
            (Input::pipe(stdin, over.clone()), theirs)
        } else {
            (Input::none(over.clone()), null()?)
        };
        Ok(Self {
            theirs: [their_stdin, their_stdout, their_stderr],
            ours: vec![
                (Source::Stdout, Arc::new(stdout)),
                (Source::Stderr, Arc::new(stderr)),
            ],
            input,
            terminal: None,
        })
    }
}

/// Standard input of a command that gets none.
fn null() -> io::Result<OwnedFd> {
    static NULL: LazyLock<io::Result<File>> = LazyLock::new(|| File::open("/dev/null"));
    match &*NULL {
        Ok(file) => Ok(file.try_clone()?.into()),
        Err(error) => Err(error.kind().into()),
    }
}

/// The tasks that carry output, one for each pipe.
struct Pumps(tokio::task::JoinSet<()>);

impl Pumps {
    fn start(output: &Arc<Output>, ends: &[(Source, Arc<End>)]) -> Self {
        let mut tasks = tokio::task::JoinSet::new();
        for (source, end) in ends {
            tasks.spawn(pump(Arc::clone(output), *source, Arc::clone(end)));
        }
        Self(tasks)
    }

    /// Waits until everything that was printed before the end is in the ring.
    ///
    /// That is when the pipes are closed. A job in the background may keep them open: then, when
    /// they are empty and stay so for a moment, or when all that waited in them has been carried
    /// and the job prints on and on.
    async fn drain(&mut self, output: &Output, ends: &[(Source, Arc<End>)]) {
        let waiting = || ends.iter().map(|(_, end)| end.waiting()).sum::<u64>();
        let started = Instant::now();
        let mut last = output.extent().end_offset;
        let due = last + waiting();
        loop {
            tokio::select! {
                biased;
                joined = self.0.join_next() => {
                    if joined.is_none() || self.0.is_empty() {
                        return;
                    }
                    continue;
                }
                () = tokio::time::sleep(DRAIN_IDLE) => {}
            }
            let carried = output.extent().end_offset;
            let is_idle = carried == last && waiting() == 0;
            let is_flooding = carried >= due && started.elapsed() > DRAIN_MOST;
            if is_idle || is_flooding {
                return;
            }
            last = carried;
        }
    }

    async fn finish(mut self) {
        while self.0.join_next().await.is_some() {}
    }
}

async fn pump(output: Arc<Output>, source: Source, end: Arc<End>) {
    let mut buf = vec![0; SMALL_READ_BYTES];
    // An error on a pipe is its end: there is nothing more to carry.
    while let Ok(read @ 1..) = end.read(&mut buf).await {
        output
            .push(source, Bytes::copy_from_slice(&buf[..read]))
            .await;
        if read == buf.len() && read < READ_BYTES {
            buf.resize(READ_BYTES, 0);
        }
    }
}
