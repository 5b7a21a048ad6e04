//! A keeper's life, from its launch to the end of its machine.
//!
//! Stages consume each other: what a stage made, it undoes when it is dropped, so a half-made
//! Space leaves no process, no socket and no lock behind.

mod shut_down;
mod starter;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use airlock_lane::LaneMemory;
use airlock_model::{BootConfig, HomePaths, LaneGeometry, Runtime, SpacePaths, SpaceState};
use rustix::fs::FlockOperation;
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::confine::confine;
use crate::guest::Guest;
use crate::logs;
use crate::protocol::{Launch, LaunchEvent, LaunchFailure, MachineLaunch, ProcessId, Status};
use crate::report::Reporter;
use crate::runtime::{Boot, LaunchError, Machine, MachineEvent};
use crate::server::{Server, StopWish};
use crate::socket::KeeperSocket;
use crate::state_file::write_state;

use shut_down::shut_down;
use starter::{Starter, read_launch};

/// How long a Space may take to shut down when the keeper itself is told to end.
const TERMINATE_GRACE: Duration = Duration::from_secs(10);
/// How long the lock of a keeper that is just ending may hold up the next one.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// How much of the console a failure shows.
const CONSOLE_TAIL_LINES: usize = 20;

/// The Space did not start, and that was reported.
#[derive(Debug)]
pub(crate) struct Gone;

/// Runs the keeper of the Space that standard input describes.
pub(crate) async fn run() -> Result<(), Gone> {
    let reporter = Reporter::new();
    let launch = match read_launch() {
        Ok(launch) => launch,
        Err(error) => {
            Reporter::failed_early(&format!("the keeper was started wrongly: {error}"));
            return Err(Gone);
        }
    };
    let paths = HomePaths::new(&launch.home).space(&launch.spec.name);
    start_log(&paths);
    // A session of its own: neither Ctrl-C nor the end of the terminal reaches the Space.
    if let Err(error) = rustix::process::setsid() {
        tracing::debug!(%error, "no session of its own");
    }
    let mut starter = Starter::watch();
    let prepared = match Prepared::new(&launch, &paths) {
        Ok(prepared) => prepared,
        Err(error) => {
            reporter.finish(&failure(&error, &paths));
            return Err(Gone);
        }
    };
    let keeper = match prepared.boot(&launch, &reporter, &mut starter).await {
        Ok(keeper) => keeper,
        Err(error) => {
            tracing::error!(%error, "the Space did not start");
            if launch.new && starter.is_gone() {
                // Nobody is left to tidy up after a creation that nobody waits for any more.
                if let Err(error) = remove_whole(&launch, &paths) {
                    tracing::warn!(%error, "cannot remove the unfinished Space");
                }
            }
            reporter.finish(&failure(&error, &paths));
            return Err(Gone);
        }
    };
    reporter.finish(&LaunchEvent::Ready {
        boot_ms: keeper.boot_ms,
    });
    keeper.serve().await;
    Ok(())
}

/// Removes the Space's folder: out of the way first, so that nobody sees half of it, and what is
/// cut short is finished by the next sweep.
fn remove_whole(launch: &Launch, paths: &SpacePaths) -> std::io::Result<()> {
    let trash = HomePaths::new(&launch.home).trash(&launch.machine_id);
    fs_err::rename(paths.dir(), &trash)?;
    fs_err::remove_dir_all(trash)
}

fn failure(error: &LaunchError, paths: &SpacePaths) -> LaunchEvent {
    let kind = error.kind();
    let console_tail = match kind {
        LaunchFailure::Boot => console_tail(&paths.console_log()),
        LaunchFailure::Unsupported
        | LaunchFailure::AlreadyRunning
        | LaunchFailure::Host
        | LaunchFailure::Cancelled => String::new(),
    };
    LaunchEvent::Failed {
        kind,
        message: error.report(),
        hints: error.hints(),
        console_tail,
    }
}

/// The last lines of the console, without the escape sequences that firmware and kernels print.
fn console_tail(path: &Path) -> String {
    let bytes = fs_err::read(path).unwrap_or_default();
    let text: String = String::from_utf8_lossy(&bytes)
        .chars()
        .filter(|c| *c == '\n' || *c == '\t' || !c.is_control())
        .collect();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(CONSOLE_TAIL_LINES)..].join("\n")
}

fn start_log(paths: &SpacePaths) {
    let file = File::options()
        .create(true)
        .append(true)
        .open(paths.keeper_log());
    if let Ok(file) = file {
        let filter = tracing_subscriber::EnvFilter::try_from_env("AIRLOCK_LOG")
            .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .with_writer(Arc::new(file));
        // A second subscriber cannot be set; the first one serves.
        let _ = subscriber.try_init();
    }
}

/// Lock, socket and lane are there; no process runs yet.
struct Prepared {
    lock: File,
    socket: KeeperSocket,
    listener: UnixListener,
    lane: Arc<LaneMemory>,
    paths: SpacePaths,
    terminate: Signal,
}

impl Prepared {
    fn new(launch: &Launch, paths: &SpacePaths) -> Result<Self, LaunchError> {
        let host = |what: &'static str| move |source| LaunchError::Host { what, source };
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(paths.lock())
            .map_err(host("open the Space's lock"))?;
        lock_patiently(&lock, launch)?;
        let (socket, listener) =
            KeeperSocket::bind(&paths.keeper_socket()).map_err(host("listen for clients"))?;
        let lane =
            LaneMemory::create(LaneGeometry::STANDARD).map_err(|error| LaunchError::Host {
                what: "make the lane",
                source: std::io::Error::other(error),
            })?;
        let terminate = signal(SignalKind::terminate()).map_err(host("watch for signals"))?;
        Ok(Self {
            lock,
            socket,
            listener,
            lane: Arc::new(lane),
            paths: paths.clone(),
            terminate,
        })
    }

    async fn boot(
        mut self,
        launch: &Launch,
        reporter: &Reporter,
        starter: &mut Starter,
    ) -> Result<Keeper, LaunchError> {
        let token = random_hex::<32>()?;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mut status = Status {
            state: SpaceState::Starting,
            keeper: ProcessId::current().map_err(|source| LaunchError::Host {
                what: "find its own process",
                source,
            })?,
            machine: None,
            runtime: match &launch.machine {
                MachineLaunch::Vm(_) => Runtime::Qemu,
                MachineLaunch::Container(container) => container.runtime,
            },
            accel: match &launch.machine {
                MachineLaunch::Vm(vm) => Some(vm.accel),
                MachineLaunch::Container(_) => None,
            },
            accel_reason: match &launch.machine {
                MachineLaunch::Vm(vm) => Some(vm.accel_reason.clone()),
                MachineLaunch::Container(_) => None,
            },
            protection: Vec::new(),
            started_at_unix_ns: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
            boot_ms: None,
            detail: None,
            build: launch.build.clone(),
        };
        self.save(&status)?;
        let boot_config = |control, network| -> Result<BootConfig, LaunchError> {
            Ok(BootConfig {
                hostname: launch.spec.name.clone(),
                token: token.clone(),
                machine_id: launch.machine_id.clone(),
                now_unix_ns: status.started_at_unix_ns,
                entropy: random_hex::<32>()?,
                host_build: launch.build.clone(),
                control,
                network,
            })
        };
        let powered_on = Instant::now();
        let boot = Boot {
            launch,
            paths: &self.paths,
            lane: &self.lane,
            config: &boot_config,
        };
        let booted = tokio::select! {
            machine = Machine::start(boot) => machine,
            () = starter.gone.cancelled() => Err(LaunchError::StarterGone),
            _ = self.terminate.recv() => Err(LaunchError::StarterGone),
        };
        let mut machine = match booted {
            Ok(machine) => machine,
            Err(error) => return Err(self.stopped(&mut status, error)),
        };
        status.machine = Some(machine.id());
        status.protection = machine.protection();
        self.save(&status)?;
        reporter.send(&LaunchEvent::Booting);
        let guest =
            Guest::new(machine.door(), token.clone()).map_err(|fault| LaunchError::Guest {
                message: fault.message,
            })?;
        let answered = tokio::select! {
            () = guest.healthy() => Ok(()),
            exit = machine.wait() => Err(LaunchError::MachineEnded { exit }),
            () = tokio::time::sleep(launch.boot_timeout) => {
                Err(LaunchError::BootTimeout { timeout: launch.boot_timeout })
            }
            () = starter.gone.cancelled() => Err(LaunchError::StarterGone),
            _ = self.terminate.recv() => Err(LaunchError::StarterGone),
        };
        if let Err(error) = answered {
            machine.pull_plug().await;
            return Err(self.stopped(&mut status, error));
        }
        let boot_ms = u64::try_from(powered_on.elapsed().as_millis()).unwrap_or(u64::MAX);
        status.boot_ms = Some(boot_ms);
        status.state = SpaceState::Running;
        self.save(&status)?;
        Ok(Keeper {
            stage: self,
            machine,
            guest,
            status,
            boot_ms,
        })
    }

    fn save(&self, status: &Status) -> Result<(), LaunchError> {
        write_state(&self.paths.state(), status).map_err(|source| LaunchError::Host {
            what: "write the Space's state",
            source,
        })
    }

    /// Writes down that the Space is off, and passes `error` on.
    fn stopped(&self, status: &mut Status, error: LaunchError) -> LaunchError {
        status.state = SpaceState::Stopped;
        status.machine = None;
        status.detail = Some(error.report());
        if let Err(error) = self.save(status) {
            tracing::warn!(%error, "cannot write the state");
        }
        error
    }
}

/// The Space runs.
struct Keeper {
    stage: Prepared,
    machine: Machine,
    guest: Guest,
    status: Status,
    boot_ms: u64,
}

/// Why a running Space ends.
enum End {
    Machine(String),
    Wish(StopWish),
    Signal,
}

impl Keeper {
    async fn serve(self) {
        let Self {
            stage,
            mut machine,
            guest,
            mut status,
            boot_ms,
        } = self;
        let Prepared {
            lock,
            socket,
            listener,
            lane,
            paths,
            mut terminate,
        } = stage;
        confine(paths.dir());
        tracing::info!(boot_ms, "the Space runs");
        let save = |status: &Status| {
            if let Err(error) = write_state(&paths.state(), status) {
                tracing::warn!(%error, "cannot write the state");
            }
        };
        let (status_out, status_in) = watch::channel(status.clone());
        let (stop_out, mut stop_in) = mpsc::channel(8);
        let cancel = CancellationToken::new();
        let server = Server::new(guest.clone(), lane, status_in, stop_out, cancel.clone());
        let serving = tokio::spawn(server.run(listener));
        // What the helper programs say: of a VM QEMU and passt, of a container passt.
        let helpers = ["qemu.log", "passt.log"].map(|log| paths.dir().join(log));
        let logs = [paths.console_log(), paths.keeper_log()]
            .into_iter()
            .chain(helpers)
            .collect();
        tokio::spawn(logs::keep_short(logs, cancel.clone()));

        let end = loop {
            tokio::select! {
                event = machine.event() => match event {
                    MachineEvent::Ended(exit) => break End::Machine(exit),
                    MachineEvent::NetworkLost(reason) => {
                        tracing::error!(%reason, "the Space has no network any more");
                        status.detail = Some(format!("its network is gone: {reason}"));
                        status_out.send_replace(status.clone());
                        save(&status);
                    }
                },
                wish = stop_in.recv() => break wish.map_or(End::Signal, End::Wish),
                _ = terminate.recv() => break End::Signal,
            }
        };
        let mut wishes = Vec::new();
        match end {
            End::Machine(exit) if machine.ended_well() => {
                tracing::info!(%exit, "the Space powered itself off");
                status.state = SpaceState::Stopped;
                status.detail = Some("it powered itself off".to_owned());
            }
            End::Machine(exit) => {
                tracing::error!(%exit, "the machine died");
                status.state = SpaceState::Crashed;
                status.detail = Some(format!("its machine died: {exit}"));
            }
            End::Wish(_) | End::Signal => {
                status.state = SpaceState::Stopping;
                status_out.send_replace(status.clone());
                save(&status);
                let mut grace = TERMINATE_GRACE;
                if let End::Wish(wish) = end {
                    grace = wish.grace;
                    wishes.push(wish);
                }
                shut_down(&guest, &mut machine, grace, &mut stop_in, &mut wishes).await;
                status.state = SpaceState::Stopped;
                status.detail = None;
            }
        }
        status.machine = None;
        save(&status);
        status_out.send_replace(status);
        drop(socket);
        for wish in wishes {
            // Whoever asked may have left.
            let _ = wish.done.send(());
        }
        cancel.cancel();
        if let Err(error) = serving.await {
            tracing::error!(%error, "the socket's task failed");
        }
        // Last of all: who gets the lock next finds nothing of this keeper.
        drop(lock);
    }
}

fn lock_patiently(lock: &File, launch: &Launch) -> Result<(), LaunchError> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(LaunchError::AlreadyRunning {
                    name: launch.spec.name.clone(),
                });
            }
            Err(error) => {
                return Err(LaunchError::Host {
                    what: "lock the Space",
                    source: error.into(),
                });
            }
        }
    }
}

fn random_hex<const BYTES: usize>() -> Result<String, LaunchError> {
    let mut bytes = [0u8; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| LaunchError::Host {
        what: "make a secret",
        source: error.into(),
    })?;
    Ok(hex::encode(bytes))
}
