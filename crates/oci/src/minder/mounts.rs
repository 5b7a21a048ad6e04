//! The stage: a private mount namespace with what the runtime needs in one folder.
//!
//! The folder is a tmpfs over some folder that every host has, so that the Space's root can pass
//! through it, which it could not on its way to a private `$AIRLOCK_HOME`. Nobody outside the
//! mount namespace sees it, and the kernel removes it with the last process in it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use fs_err as fs;
use rustix::fs::{CWD, Gid, Mode, OFlags, Uid};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount, mount_change,
    move_mount,
};

use super::MinderError;
use super::plan::Plan;
use crate::Ids;

/// Folders of which every host has one, and which nothing needs while a Space runs. All of their
/// parents can be passed by everyone.
const PLACES: [&str; 3] = ["/mnt", "/media", "/tmp"];

/// Where things are for the runtime.
pub(super) struct Stage {
    folder: PathBuf,
}

impl Stage {
    /// The Space's root folder.
    pub(super) fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// The folder with `config.json`.
    pub(super) fn bundle(&self) -> PathBuf {
        self.folder.join("bundle")
    }

    /// A read-only sysfs of the Space's network namespace.
    pub(super) fn sysfs(&self) -> PathBuf {
        self.folder.join("sys")
    }

    /// The runtime's own state.
    pub(super) fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// The runtime's log.
    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Where the runtime writes the container's pid.
    pub(super) fn pid_file(&self) -> PathBuf {
        self.folder.join("pid")
    }

    /// Sets the stage in this process's fresh mount namespace.
    pub(super) fn set(plan: &Plan) -> Result<Self, MinderError> {
        let failed = |what| move |errno: rustix::io::Errno| MinderError::host(what)(errno.into());
        mount_change(
            "/",
            MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
        )
        .map_err(failed("make the mounts private"))?;
        let hardened = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("proc", "/proc", "proc", hardened, None::<&CStr>)
            .map_err(failed("mount the process table"))?;
        let root = overlay(plan)?;
        let folder = PLACES
            .into_iter()
            .map(Path::new)
            .find(|place| place.is_dir())
            .ok_or_else(|| {
                MinderError::host("find a folder to use")(io::ErrorKind::NotFound.into())
            })?
            .to_owned();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("airlock", &folder, "tmpfs", flags, c"mode=0711")
            .map_err(failed("mount a folder to work in"))?;
        let stage = Self { folder };
        for part in [stage.root(), stage.bundle(), stage.sysfs(), stage.state()] {
            fs::create_dir(part).map_err(MinderError::host("make a folder to work in"))?;
        }
        move_mount(
            &root,
            "",
            CWD,
            stage.root(),
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        )
        .map_err(failed("place the Space's root folder"))?;
        let read_only = hardened | MountFlags::RDONLY;
        mount("sysfs", stage.sysfs(), "sysfs", read_only, None::<&CStr>)
            .map_err(failed("mount what the kernel tells"))?;
        Ok(stage)
    }
}

/// The image's folder with the Space's changes over it, mounted nowhere yet.
fn overlay(plan: &Plan) -> Result<OwnedFd, MinderError> {
    let owner = plan.ids.file_base();
    for folder in [&plan.upper, &plan.work] {
        own_folder(folder, owner).map_err(MinderError::host("make the Space's folders"))?;
    }
    let open = |path: &Path| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, path, flags, Mode::empty())
    };
    let mount = || {
        let (lower, upper, work) = (open(&plan.lower)?, open(&plan.upper)?, open(&plan.work)?);
        let config = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        // By descriptor: a path with a colon or a comma in it would be read as several.
        let by_fd = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
        fsconfig_set_string(&config, "source", "airlock")?;
        fsconfig_set_string(&config, "lowerdir", by_fd(&lower))?;
        fsconfig_set_string(&config, "upperdir", by_fd(&upper))?;
        fsconfig_set_string(&config, "workdir", by_fd(&work))?;
        match plan.ids {
            Ids::Root { .. } => {}
            // Only root of the host may use the attributes that are not for users.
            Ids::Subordinate { .. } | Ids::Single => fsconfig_set_flag(&config, "userxattr")?,
        }
        fsconfig_create(&config)?;
        fsmount(
            &config,
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::MOUNT_ATTR_NODEV,
        )
    };
    mount().map_err(|errno| MinderError::Forbidden {
        what: "lay the Space's folder over the image's (overlayfs)",
        hint: "AIRLOCK_HOME must be on a file system that overlayfs can write to, such as ext4, \
               XFS or tmpfs; overlayfs for ordinary users needs Linux 5.11",
        source: errno.into(),
    })
}

/// Makes `folder` and gives it to `owner`, the Space's root.
fn own_folder(folder: &Path, owner: Option<u32>) -> io::Result<()> {
    match rustix::fs::mkdir(folder, Mode::from_raw_mode(0o755)) {
        // The umask has no say.
        Ok(()) => rustix::fs::chmod(folder, Mode::from_raw_mode(0o755))?,
        Err(rustix::io::Errno::EXIST) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    }
    if let Some(id) = owner {
        let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
        rustix::fs::chown(folder, Some(uid), Some(gid))?;
    }
    Ok(())
}
