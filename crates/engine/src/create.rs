//! Making a Space: its files first, under a name that no Space can have, then its machine.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use airlock_image::{Catalog, Image, ImageSource, OnProgress};
use airlock_keeper::protocol::{ContainerLaunch, Launch, MachineLaunch, VmLaunch};
use airlock_model::size::GIB;
use airlock_model::{ImageName, Kind, SpaceSpec};
use airlock_oci::Ids;
use airlock_process::RunAs;
use airlock_qemu::{Arch, discover, overlay};
use rustix::fs::{CWD, FlockOperation, RenameFlags};
use tokio_util::sync::CancellationToken;

use crate::home::{MAKER_LOCK, NEW_PREFIX};
use crate::record::{ContainerBase, Record, base_disk};
use crate::{Engine, EngineError, Event, EventSink, SpaceInfo, mapped};

/// Longest boot, unless `AIRLOCK_BOOT_TIMEOUT_S` says otherwise: under software emulation on a
/// busy host a boot takes many times longer than usual.
const BOOT_TIMEOUT: Duration = Duration::from_secs(60);
/// The least memory a kernel, guestd and one transfer fit in.
const LEAST_MEMORY_MB: u64 = 128;

impl Engine {
    /// Makes the Space that `spec` describes and waits until it is ready. A missing image is
    /// built first. On an error, or when `cancel` fires, nothing of the Space is left.
    pub async fn create(
        &self,
        spec: SpaceSpec,
        events: EventSink<'_>,
        cancel: &CancellationToken,
    ) -> Result<SpaceInfo, EngineError> {
        check(&spec)?;
        let name = spec.name.clone();
        if self.home.space(&name).dir().exists() {
            return Err(EngineError::Exists { name });
        }
        let decision = self.decide(&spec, cancel).await?;
        if let Some(reason) = &decision.reason {
            events(Event::Note(format!("{}: {reason}", decision.kind)));
        }
        let spec = SpaceSpec {
            kind: decision.kind,
            runtime: decision.runtime,
            ..spec
        };
        let mut record = Record {
            spec,
            kind_reason: decision.reason,
            container: None,
            machine_id: machine_id()?,
            created_at_unix_ns: now_unix_ns(),
        };
        let base = self.base(&record, events, cancel).await?;
        match &base {
            Base::Image(_) => {}
            Base::Container(container) => record.container = Some(container.clone()),
        }
        let made = self.make_files(&record, &base).await?;
        if cancel.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        made.publish(&self.home.space(&name), &name)?;
        if let Err(error) = self.launch(&record, &base, true, events, cancel).await {
            self.remove_files(&name)?;
            return Err(error);
        }
        self.info(&name)
    }

    /// Makes an image of what `source` names, unless that was done before.
    pub async fn import(
        &self,
        source: ImageSource,
        events: EventSink<'_>,
        cancel: &CancellationToken,
    ) -> Result<ImageName, EngineError> {
        let import = move |catalog: Catalog, report: &OnProgress<'_>, cancel: &_| {
            Ok(catalog.import(&source, report, cancel)?)
        };
        self.blocking(import, events, cancel).await
    }

    /// What the Space of `record` is based on, built or unpacked if need be.
    pub(crate) async fn base(
        &self,
        record: &Record,
        events: EventSink<'_>,
        cancel: &CancellationToken,
    ) -> Result<Base, EngineError> {
        let name = record.spec.image.clone();
        match record.spec.kind {
            Kind::Auto | Kind::Vm => {
                let build = move |catalog: Catalog, report: &OnProgress<'_>, cancel: &_| {
                    Ok(catalog.ensure(&name, report, cancel)?)
                };
                Ok(Base::Image(self.blocking(build, events, cancel).await?))
            }
            Kind::Container => {
                if let Some(base) = &record.container {
                    return Ok(Base::Container(base.clone()));
                }
                let ids = Ids::choose();
                let home = self.home.clone();
                let unpack = move |_: Catalog, report: &OnProgress<'_>, cancel: &_| {
                    mapped::unpack(&home, &name, ids, report, cancel)
                };
                let tree = self.blocking(unpack, events, cancel).await?;
                Ok(Base::Container(ContainerBase {
                    tree: tree.path,
                    ids,
                    env: tree.env,
                }))
            }
        }
    }

    /// Does blocking work of minutes on the catalog; its progress goes to `events`.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(Catalog, &OnProgress<'_>, &CancellationToken) -> Result<T, EngineError>
        + Send
        + 'static,
        events: EventSink<'_>,
        cancel: &CancellationToken,
    ) -> Result<T, EngineError> {
        let catalog = self.catalog();
        let cancel = cancel.clone();
        // Progress comes back over a channel because the sink may not outlive this call.
        let (progress_out, mut progress_in) = tokio::sync::mpsc::unbounded_channel();
        let working = tokio::task::spawn_blocking(move || {
            let report = move |progress| {
                // Nobody listens any more only when the caller is gone.
                let _ = progress_out.send(progress);
            };
            work(catalog, &report, &cancel)
        });
        while let Some(progress) = progress_in.recv().await {
            events(Event::Image(progress));
        }
        working
            .await
            .map_err(|error| EngineError::KeeperStart(std::io::Error::other(error)))?
    }

    async fn make_files(&self, record: &Record, base: &Base) -> Result<Unfinished, EngineError> {
        let unfinished = Unfinished::new(&self.home.spaces())?;
        let dir = unfinished.dir.path();
        record
            .write(&dir.join("spec.json"))
            .map_err(EngineError::file("write", dir.join("spec.json")))?;
        if let Base::Image(image) = base
            && let Some(root) = &image.root
        {
            let base = dir.join("base.ext4");
            fs_err::hard_link(root, &base).map_err(EngineError::file("link", &base))?;
            let least_gb = image.root_bytes.div_ceil(GIB);
            if record.spec.disk_gb < least_gb {
                return Err(EngineError::OutOfRange {
                    flag: "--disk-gb",
                    found: record.spec.disk_gb,
                    allowed: format!("the image {} needs at least {least_gb}", image.name),
                });
            }
            let qemu = discover::find_qemu(host_arch()).await?;
            let bytes = record.spec.disk_gb * GIB;
            overlay::create(&qemu, &dir.join("overlay.qcow2"), bytes, RunAs::for_vm()).await?;
        }
        Ok(unfinished)
    }

    /// Starts the keeper of a Space whose files are there.
    pub(crate) async fn launch(
        &self,
        record: &Record,
        base: &Base,
        new: bool,
        events: EventSink<'_>,
        cancel: &CancellationToken,
    ) -> Result<(), EngineError> {
        let paths = self.home.space(&record.spec.name);
        let machine = match base {
            Base::Image(image) => {
                MachineLaunch::Vm(self.vm_launch(record, image, events, cancel).await?)
            }
            Base::Container(base) => MachineLaunch::Container(container_launch(record, base)?),
        };
        let launch = Launch {
            home: self.home.root().to_owned(),
            spec: record.spec.clone(),
            machine_id: record.machine_id.clone(),
            machine,
            build: crate::BUILD.to_owned(),
            boot_timeout: boot_timeout(),
            new,
        };
        crate::launch::launch(&launch, &paths, events, cancel).await
    }

    async fn vm_launch(
        &self,
        record: &Record,
        image: &Image,
        events: EventSink<'_>,
        cancel: &CancellationToken,
    ) -> Result<VmLaunch, EngineError> {
        let qemu = discover::find_qemu(host_arch()).await?;
        let resolved = tokio::select! {
            resolved = self.resolve(record.spec.accel, &qemu, image) => resolved?,
            () = cancel.cancelled() => return Err(EngineError::Cancelled),
        };
        events(Event::Note(format!(
            "accelerator {}: {}",
            resolved.accel, resolved.reason
        )));
        let paths = self.home.space(&record.spec.name);
        Ok(VmLaunch {
            accel: resolved.accel.into(),
            accel_reason: resolved.reason,
            kernel: image.kernel.clone(),
            initramfs: image.initramfs.clone(),
            root: image.root.as_ref().map(|_| base_disk(&paths)),
        })
    }
}

/// What a Space is based on.
pub(crate) enum Base {
    /// A kernel, an initramfs and perhaps a root disk.
    Image(Image),
    /// A root folder and its ids.
    Container(ContainerBase),
}

fn container_launch(record: &Record, base: &ContainerBase) -> Result<ContainerLaunch, EngineError> {
    if !base.tree.is_dir() {
        return Err(EngineError::Damaged {
            path: base.tree.clone(),
            reason: "the image's folder that the Space is based on is gone".to_owned(),
        });
    }
    let runtime = airlock_oci::runtime::find(record.spec.runtime)?;
    Ok(ContainerLaunch {
        runtime: runtime.name,
        program: runtime.path,
        version: runtime.version,
        tree: base.tree.clone(),
        ids: base.ids,
        env: base.env.clone(),
    })
}

/// A Space's folder under a name that no Space can have; removed unless it is published.
struct Unfinished {
    dir: tempfile::TempDir,
    _lock: File,
}

impl Unfinished {
    fn new(spaces: &Path) -> Result<Self, EngineError> {
        let dir = tempfile::Builder::new()
            .prefix(NEW_PREFIX)
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir_in(spaces)
            .map_err(EngineError::file("make a folder in", spaces))?;
        // Locked before it has its name: a sweep that finds it by name finds it locked.
        let unnamed = dir.path().join("maker.lock.new");
        let lock = File::create(&unnamed).map_err(EngineError::file("make", &unnamed))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            EngineError::File {
                what: "lock",
                path: unnamed.clone(),
                source: error.into(),
            }
        })?;
        let path = dir.path().join(MAKER_LOCK);
        fs_err::rename(&unnamed, &path).map_err(EngineError::file("name", &path))?;
        Ok(Self { dir, _lock: lock })
    }

    fn publish(
        self,
        paths: &airlock_model::SpacePaths,
        name: &airlock_model::SpaceName,
    ) -> Result<(), EngineError> {
        let marker = self.dir.path().join(MAKER_LOCK);
        fs_err::remove_file(&marker).map_err(EngineError::file("remove", &marker))?;
        match rustix::fs::renameat_with(
            CWD,
            self.dir.path(),
            CWD,
            paths.dir(),
            RenameFlags::NOREPLACE,
        ) {
            Ok(()) => {
                // It has its final name now: nothing to remove.
                let _ = self.dir.keep();
                Ok(())
            }
            Err(rustix::io::Errno::EXIST) => Err(EngineError::Exists { name: name.clone() }),
            Err(error) => Err(EngineError::File {
                what: "make the folder",
                path: paths.dir().to_owned(),
                source: error.into(),
            }),
        }
    }
}

fn check(spec: &SpaceSpec) -> Result<(), EngineError> {
    let range = |flag, found, least: u64, most: u64| {
        if (least..=most).contains(&found) {
            return Ok(());
        }
        Err(EngineError::OutOfRange {
            flag,
            found,
            allowed: format!("{least} to {most}"),
        })
    };
    range("--cpus", u64::from(spec.cpus), 1, 64)?;
    range("--memory-mb", spec.memory_mb, LEAST_MEMORY_MB, 1024 * 1024)?;
    range("--disk-gb", spec.disk_gb, 1, 16 * 1024)
}

pub(crate) fn host_arch() -> Arch {
    // Where Airlock itself is built for something else, its guests are x86-64.
    Arch::host().unwrap_or(Arch::X86_64)
}

fn boot_timeout() -> Duration {
    std::env::var("AIRLOCK_BOOT_TIMEOUT_S")
        .ok()
        .and_then(|text| text.parse().ok())
        .map_or(BOOT_TIMEOUT, Duration::from_secs)
}

fn machine_id() -> Result<String, EngineError> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| EngineError::KeeperStart(error.into()))?;
    Ok(hex::encode(bytes))
}

fn now_unix_ns() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
