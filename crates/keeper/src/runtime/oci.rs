//! A Space as a container of an OCI runtime, behind a minder.

mod console;
mod files;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;

use airlock_model::Network;
use airlock_net::passt::{DataLink, Passt};
use airlock_oci::cgroup::{self, Support};
use airlock_oci::minder::{Event, Fds, Mapped, Plan};
use airlock_oci::{DEFAULT_OPEN_FILES, Ids, Limits, ids};
use airlock_process::{self as process, InheritedFds, SpawnRequest, VmProcess};

use super::data::{self, open_log};
use super::{Boot, LaunchError, MachineEvent};
use crate::guest::Door;
use crate::protocol::{ContainerLaunch, MessageStream, ProcessId};

/// Processes and threads that a Space may have: twice what Podman allows. Each costs the kernel
/// some milliseconds when all of them are killed at once.
const MAX_PIDS: i64 = 4096;

/// A running container and what belongs to it.
pub(crate) struct Container {
    minder: VmProcess,
    events: MessageStream,
    /// The first process of the Space's processes; with it all of them end.
    first: ProcessId,
    // Dropping it ends passt.
    data: Option<DataLink>,
    door: Door,
    // After the minder, so that nothing is in it any more when it is dropped.
    place: Option<Place>,
    protection: Vec<String>,
    exit: Option<ExitStatus>,
}

/// A Space's place among the host's cgroups, removed when it is dropped.
struct Place(String);

impl Place {
    /// The place at `path`, empty of what a keeper left there that was killed: a runtime takes no
    /// group that is there.
    fn new(path: String) -> Self {
        cgroup::remove(&path);
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        cgroup::remove(&self.0);
    }
}

/// A minder that was started and has not reported yet.
struct Starting {
    minder: VmProcess,
    events: MessageStream,
    ids: Ids,
}

/// What a minder reported on the way.
struct Started {
    first: ProcessId,
    tap: Option<OwnedFd>,
    /// Why the Space has a copy of the image.
    copied: Option<String>,
}

impl Container {
    /// Starts the container and waits until its first process runs.
    pub(super) async fn start(
        boot: &Boot<'_>,
        container: &ContainerLaunch,
    ) -> Result<Self, LaunchError> {
        let log_path = boot.paths.dir().join("passt.log");
        let passt = match boot.launch.spec.network {
            Network::None => None,
            Network::Default => Some(data::start(&log_path)?),
        };
        let net = passt.as_ref().map(|passt| passt.guest.clone());
        let config = (boot.config)(None, net.clone())?;
        airlock_lane::boot::write_boot_config(boot.lane, &config).map_err(|error| {
            LaunchError::Host {
                what: "write the boot configuration",
                source: std::io::Error::other(error),
            }
        })?;
        let cgroups = Support::detect();
        let spec = &boot.launch.spec;
        let path = cgroups.place(&boot.launch.machine_id);
        let plan = |fds| Plan {
            runtime: container.program.clone(),
            hostname: spec.name.to_string(),
            env: environment(container),
            lower: container.tree.clone(),
            upper: boot.paths.upper(),
            work: boot.paths.work(),
            ids: container.ids,
            network: net.clone(),
            cgroup: path.clone().map(|path| {
                let limits = Limits {
                    cpus: spec.cpus,
                    memory_bytes: spec.memory_mb * 1024 * 1024,
                    pids: MAX_PIDS,
                    can_limit_swap: matches!(
                        cgroups,
                        Support::Limits {
                            can_limit_swap: true,
                            ..
                        }
                    ),
                    can_limit_devices: rustix::process::geteuid().is_root(),
                };
                (path, limits)
            }),
            cgroup_mount: cgroups.mount(),
            open_files: open_files(),
            host_cpus: host_cpus(),
            fds,
        };
        // Declared before the minder, so that it is dropped after it.
        let place = path.clone().map(Place::new);
        let starting = Starting::spawn(boot, container, plan).await?;
        let (minder, events, started) = starting.wait().await?;
        let data = join(passt, started.tap)?;
        let mut protection = protection(container, &cgroups, spec.network);
        if let Some(because) = started.copied {
            protection.push(format!(
                "its files are a copy of the image's, which takes time and room: no layer could \
                 be laid over them (overlayfs: {because})"
            ));
        }
        Ok(Self {
            minder,
            events,
            first: started.first,
            data,
            door: Door::Socket(boot.paths.guest_socket()),
            place,
            protection,
            exit: None,
        })
    }

    pub(super) fn id(&self) -> ProcessId {
        self.first
    }

    pub(super) fn door(&self) -> Door {
        self.door.clone()
    }

    pub(super) fn protection(&self) -> Vec<String> {
        self.protection.clone()
    }

    pub(super) async fn event(&mut self) -> MachineEvent {
        let Some(link) = &mut self.data else {
            return MachineEvent::Ended(self.wait().await);
        };
        let lost = tokio::select! {
            // The container's end takes the network along; that is not worth a word of its own.
            biased;
            status = self.minder.wait() => {
                if let Ok(status) = status {
                    self.exit = Some(status);
                }
                return MachineEvent::Ended(self.wait().await);
            }
            lost = link.ended() => lost,
        };
        self.data = None;
        MachineEvent::NetworkLost(match lost {
            Ok(()) => "passt ended".to_owned(),
            Err(error) => error.to_string(),
        })
    }

    pub(super) async fn wait(&mut self) -> String {
        match self.minder.wait().await {
            Ok(status) => self.exit = Some(status),
            Err(error) => return format!("the container cannot be waited for: {error}"),
        }
        self.place = None;
        // The minder's last word, if it had the time for one.
        match self.events.receive::<Event>().await {
            Ok((Event::Ended { how }, _)) => how,
            Ok(_) | Err(_) => "the container was killed".to_owned(),
        }
    }

    pub(super) fn ended_well(&mut self) -> bool {
        self.exit.is_some_and(|status| status.success())
    }

    pub(super) async fn quit(&mut self) {
        // Nothing gentler is left: guestd was asked before.
        self.pull_plug().await;
    }

    pub(super) async fn pull_plug(&mut self) {
        if let Some(place) = &self.place {
            cgroup::release(&place.0);
        }
        if let Err(error) = self.first.kill() {
            tracing::error!(%error, "cannot kill the container");
        }
        self.wait().await;
    }
}

impl Starting {
    async fn spawn(
        boot: &Boot<'_>,
        container: &ContainerLaunch,
        plan: impl FnOnce(Fds) -> Plan,
    ) -> Result<Self, LaunchError> {
        let host = |what: &'static str| move |source| LaunchError::Host { what, source };
        let mut fds = InheritedFds::new();
        let lane = rustix::io::fcntl_dupfd_cloexec(boot.lane, 0)
            .map_err(|errno| host("share the lane")(errno.into()))?;
        let listener =
            files::listen(&boot.paths.guest_socket()).map_err(host("make the socket of guestd"))?;
        let guestd = airlock_image::guestd_bin::find()?;
        let guestd = files::in_memory(&guestd.bytes).map_err(host("hold guestd in memory"))?;
        let console = open_log(&boot.paths.console_log()).map_err(host("open the console log"))?;
        let console = console::start(console).map_err(host("make a pipe"))?;
        let (ours, theirs) = process::socket_pair().map_err(host("make a socket pair"))?;
        let plan = plan(Fds {
            lane: fds.add(lane),
            listener: fds.add(listener),
            guestd: fds.add(guestd),
            console: fds.add(console),
        });
        let socket = fds.add(theirs);
        let minder = process::spawn(SpawnRequest {
            binary: "/proc/self/exe".into(),
            argv: vec!["minder".into(), socket.to_string().into()],
            inherited: fds,
            run_as: None,
            log: Some(keeper_log(boot).map_err(host("open the keeper's log"))?),
        })?;
        let mut events = MessageStream::new(ours);
        events.send(&plan, None).await.map_err(lost)?;
        Ok(Self {
            minder,
            events,
            ids: container.ids,
        })
    }

    /// Follows the minder's reports until the container runs.
    async fn wait(mut self) -> Result<(VmProcess, MessageStream, Started), LaunchError> {
        let mut first = None;
        let mut tap = None;
        let mut copied = None;
        loop {
            let (event, fd) = self.events.receive::<Event>().await.map_err(lost)?;
            match event {
                Event::WantsIds => {
                    ids::map(self.minder.pid(), &self.ids).map_err(|source| {
                        LaunchError::Container {
                            message: source.to_string(),
                            hint: source.hint().to_owned(),
                            unsupported: true,
                        }
                    })?;
                    self.events.send(&Mapped {}, None).await.map_err(lost)?;
                }
                Event::Forked { pid } => first = ProcessId::of(pid).ok(),
                Event::Network => tap = fd,
                Event::Copied { because } => copied = Some(because),
                Event::Started => {
                    let first = first.ok_or_else(|| gone("it has no first process".to_owned()))?;
                    return Ok((self.minder, self.events, Started { first, tap, copied }));
                }
                Event::Failed {
                    unsupported,
                    message,
                    hint,
                } => {
                    return Err(LaunchError::Container {
                        message,
                        hint,
                        unsupported,
                    });
                }
                Event::Ended { how } => return Err(gone(how)),
            }
        }
    }
}

fn join(passt: Option<Passt>, tap: Option<OwnedFd>) -> Result<Option<DataLink>, LaunchError> {
    match (passt, tap) {
        (None, _) => Ok(None),
        (Some(passt), Some(tap)) => Ok(Some(passt.join_tap(tap).map_err(data::failed)?)),
        (Some(_), None) => Err(gone("it made no network interface".to_owned())),
    }
}

fn gone(message: String) -> LaunchError {
    LaunchError::Container {
        message,
        hint: String::new(),
        unsupported: false,
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that map_err wants"
)]
fn lost(error: crate::protocol::TransportError) -> LaunchError {
    gone(format!("its minder does not answer: {error}"))
}

fn keeper_log(boot: &Boot<'_>) -> std::io::Result<File> {
    open_log(&boot.paths.keeper_log())
}

/// The search path that a shell of the distribution has, unless the image says otherwise.
fn environment(container: &ContainerLaunch) -> Vec<(String, String)> {
    let mut env = container.env.clone();
    if env.iter().all(|(name, _)| name != "PATH") {
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        env.push(("PATH".to_owned(), path.to_owned()));
    }
    env
}

/// What a Space may have, unless the keeper itself has less: even root cannot always raise it.
fn open_files() -> u64 {
    let own = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    own.map_or(DEFAULT_OPEN_FILES, |own| own.min(DEFAULT_OPEN_FILES))
}

fn host_cpus() -> u32 {
    std::thread::available_parallelism()
        .ok()
        .and_then(|count| u32::try_from(count.get()).ok())
        .unwrap_or(1)
}

fn protection(container: &ContainerLaunch, cgroups: &Support, network: Network) -> Vec<String> {
    let mut facts = vec![
        format!(
            "the host's kernel, behind namespaces, a filter of system calls and dropped \
             capabilities ({} {})",
            container.runtime, container.version
        ),
        container.ids.describe(),
        cgroups.describe(),
        "the disk is the host's: --disk-gb is not enforced".to_owned(),
    ];
    match network {
        Network::Default => {
            facts.push(
                "its network cannot be changed from inside, nor reach the host's loopback"
                    .to_owned(),
            );
        }
        Network::None => {}
    }
    facts
}
