//! A Space as a virtual machine of QEMU.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitStatus;

use airlock_model::{Accel, NetConfig, Network};
use airlock_net::passt::DataLink;
use airlock_process::{self as process, SpawnRequest};
use airlock_process::{InheritedFds, RunAs, VmProcess};
use airlock_qemu::argv::{
    self, CONTROL_GUEST_CIDR, CONTROL_MTU, ControlNet, DataNet, Lane, RootDisk, Source, VmConfig,
};
use airlock_qemu::qmp::Qmp;
use airlock_qemu::{Arch, Backend, discover};

use super::data::{self, DATA_MAC, open_log};
use super::{Boot, LaunchError, MachineEvent};
use crate::guest::Door;
use crate::protocol::{ProcessId, VmLaunch};

/// Hardware address: each Space has a network of its own, so they can all be the same.
const CONTROL_MAC: &str = "52:54:00:61:6c:01";
/// How much of QEMU's log an error shows.
const LOG_TAIL_BYTES: usize = 2000;

/// A running QEMU and what belongs to it.
pub(crate) struct QemuMachine {
    process: VmProcess,
    qmp: Qmp,
    // Dropping it ends passt.
    data: Option<DataLink>,
    address: SocketAddr,
    accel: Accel,
    exit: Option<ExitStatus>,
}

impl QemuMachine {
    /// Starts QEMU and waits until it answers and its forwarded port is known.
    pub(super) async fn start(boot: &Boot<'_>, vm: &VmLaunch) -> Result<Self, LaunchError> {
        let host = |what: &'static str| move |source| LaunchError::Host { what, source };
        let arch = Arch::host().unwrap_or(Arch::X86_64);
        let qemu = discover::find_qemu(arch)
            .await
            .map_err(LaunchError::Discover)?;
        let launch = boot.launch;
        let mut fds = InheritedFds::new();
        let log_path = boot.paths.dir().join("qemu.log");

        let (data, data_fd) = match launch.spec.network {
            Network::None => (None, None),
            Network::Default => {
                let passt = data::start(&log_path)?;
                let (link, fd) = passt.join_socket().map_err(data::failed)?;
                (Some(link), Some(fds.add(fd)))
            }
        };
        let config = (boot.config)(
            Some(control_net()),
            data.as_ref().map(|link| link.guest.clone()),
        )?;
        airlock_lane::boot::write_boot_config(boot.lane, &config).map_err(|error| {
            LaunchError::Host {
                what: "write the boot configuration",
                source: std::io::Error::other(error),
            }
        })?;

        let lane = boot
            .lane
            .as_fd()
            .try_clone_to_owned()
            .map_err(host("share the lane"))?;
        let console = open_log(&boot.paths.console_log()).map_err(host("open the console log"))?;
        let (qmp_ours, qmp_theirs) = process::socket_pair().map_err(host("make a socket pair"))?;
        let root = match &vm.root {
            None => None,
            Some(base) => {
                let base = File::open(base).map_err(host("open the image's disk"))?;
                let overlay = File::options()
                    .read(true)
                    .write(true)
                    .open(boot.paths.overlay())
                    .map_err(host("open the Space's disk"))?;
                Some(RootDisk {
                    base: fds.add(base),
                    overlay: fds.add(overlay),
                })
            }
        };
        let kernel = File::open(&vm.kernel).map_err(host("open the kernel"))?;
        let initramfs = File::open(&vm.initramfs).map_err(host("open the initramfs"))?;
        let config = VmConfig {
            arch,
            accel: backend(vm.accel),
            cpus: launch.spec.cpus,
            memory_mb: launch.spec.memory_mb,
            kernel: Source::Fd(fds.add(kernel)),
            initrd: Source::Fd(fds.add(initramfs)),
            cmdline: argv::fast_cmdline(arch),
            lane: Some(Lane { fd: fds.add(lane) }),
            root,
            control: Some(ControlNet {
                mac: CONTROL_MAC.to_owned(),
            }),
            data: data_fd.map(|fd| DataNet {
                mac: DATA_MAC.to_owned(),
                fd,
            }),
            qmp: fds.add(qmp_theirs),
            console: fds.add(console),
            sandbox: cfg!(target_os = "linux"),
        };
        let process = process::spawn(SpawnRequest {
            binary: qemu.path,
            argv: argv::build(&config),
            inherited: fds,
            run_as: RunAs::for_vm(),
            log: Some(open_log(&log_path).map_err(host("open QEMU's log"))?),
        })?;
        let answered = async {
            let qmp = Qmp::connect(qmp_ours).await?;
            let port = qmp.info_usernet_port().await?;
            Ok((qmp, port))
        };
        let (qmp, port) = answered.await.map_err(|source| LaunchError::QemuStart {
            log: tail(&log_path),
            source,
        })?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Self {
            process,
            qmp,
            data,
            address,
            accel: vm.accel,
            exit: None,
        })
    }

    pub(super) fn protection(&self) -> Vec<String> {
        let wall = match self.accel {
            Accel::Kvm | Accel::Hvf => {
                format!(
                    "the processor's virtualisation ({}) and QEMU's devices",
                    self.accel
                )
            }
            // https://www.qemu.org/docs/master/system/security.html: "non-virtualization use case".
            Accel::Auto | Accel::Tcg => "QEMU's software emulation, which QEMU itself does not \
                                         call a security boundary"
                .to_owned(),
        };
        let user = match RunAs::for_vm() {
            Some(RunAs { uid, .. }) => format!("QEMU runs as uid {uid} in its own sandbox"),
            None => "QEMU runs as you, in its own sandbox".to_owned(),
        };
        vec![
            format!("a kernel of its own behind {wall}"),
            user,
            "memory, CPUs and disk are the machine's own and end where they end".to_owned(),
        ]
    }

    pub(super) fn id(&self) -> ProcessId {
        ProcessId {
            pid: self.process.pid(),
            start_ticks: self.process.start_time(),
        }
    }

    pub(super) fn door(&self) -> Door {
        Door::Port(self.address)
    }

    pub(super) async fn event(&mut self) -> MachineEvent {
        let Self {
            process,
            data,
            exit,
            ..
        } = self;
        let Some(link) = data else {
            return MachineEvent::Ended(ended(process.wait().await, exit));
        };
        let lost = tokio::select! {
            // QEMU's end takes the network along; that is not worth a word of its own.
            biased;
            status = process.wait() => return MachineEvent::Ended(ended(status, exit)),
            lost = link.ended() => lost,
        };
        *data = None;
        MachineEvent::NetworkLost(match lost {
            Ok(()) => "passt ended".to_owned(),
            Err(error) => error.to_string(),
        })
    }

    pub(super) async fn wait(&mut self) -> String {
        ended(self.process.wait().await, &mut self.exit)
    }

    pub(super) fn ended_well(&mut self) -> bool {
        // QEMU exits with 0 when the guest powers off or resets (`-no-reboot`).
        self.exit.is_some_and(|status| status.success())
    }

    pub(super) async fn quit(&mut self) {
        if let Err(error) = self.qmp.quit().await {
            tracing::debug!(%error, "QEMU does not take the command to quit");
            return;
        }
        self.wait().await;
    }

    pub(super) async fn pull_plug(&mut self) {
        match self.process.kill().await {
            Ok(status) => self.exit = Some(status),
            Err(error) => tracing::error!(%error, "cannot kill QEMU"),
        }
    }
}

/// The interface that carries the control connection.
fn control_net() -> NetConfig {
    NetConfig {
        mac: CONTROL_MAC.to_owned(),
        addresses: vec![CONTROL_GUEST_CIDR.to_owned()],
        gateways: Vec::new(),
        dns: Vec::new(),
        mtu: CONTROL_MTU,
    }
}

fn ended(status: std::io::Result<ExitStatus>, exit: &mut Option<ExitStatus>) -> String {
    match status {
        Ok(status) => {
            *exit = Some(status);
            format!("QEMU ended ({status})")
        }
        Err(error) => format!("QEMU cannot be waited for: {error}"),
    }
}

fn backend(accel: Accel) -> Backend {
    match accel {
        Accel::Kvm => Backend::Kvm,
        Accel::Hvf => Backend::Hvf,
        // The engine resolves `auto`; what reaches this and is neither runs everywhere.
        Accel::Auto | Accel::Tcg => Backend::Tcg,
    }
}

fn tail(path: &Path) -> String {
    let bytes = fs_err::read(path).unwrap_or_default();
    let from = bytes.len().saturating_sub(LOG_TAIL_BYTES);
    String::from_utf8_lossy(&bytes[from..])
        .trim()
        .replace('\n', "; ")
}
