//! The stage: a private mount namespace with what the runtime needs in one folder.
//!
//! The folder is a tmpfs over some folder that every host has, so that the Space's root can pass
//! through it, which it could not on its way to a private `$AIRLOCK_HOME`. Nobody outside the
//! mount namespace sees it, and the kernel removes it with the last process in it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fs_err as fs;
use rustix::fs::{CWD, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount,
    mount_change, mount_remount, move_mount, open_tree,
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
    /// Why the Space has a copy of the image's files instead of a layer over them.
    pub(super) copied: Option<String>,
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
        let failed = |what| move |errno: Errno| MinderError::host(what)(errno.into());
        mount_change(
            "/",
            MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
        )
        .map_err(failed("make the mounts private"))?;
        let hardened = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("proc", "/proc", "proc", hardened, None::<&CStr>)
            .map_err(failed("mount the process table"))?;
        let (root, copied) = match overlay(plan) {
            Ok(root) => (root, None),
            Err(errno) => (copy(plan)?, Some(errno.to_string())),
        };
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
        let stage = Self { folder, copied };
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
        if stage.copied.is_some() {
            mount_remount(stage.root(), MountFlags::BIND | MountFlags::NODEV, c"")
                .map_err(failed("forbid devices in the Space's root folder"))?;
        }
        let read_only = hardened | MountFlags::RDONLY;
        mount("sysfs", stage.sysfs(), "sysfs", read_only, None::<&CStr>)
            .map_err(failed("mount what the kernel tells"))?;
        Ok(stage)
    }
}

/// The image's folder with the Space's changes over it, mounted nowhere yet.
fn overlay(plan: &Plan) -> Result<OwnedFd, Errno> {
    if copy_marker(plan).exists() {
        // What it has is whole; a layer of it over the image would bring removed files back.
        return Err(Errno::OPNOTSUPP);
    }
    let owner = plan.ids.file_base();
    for folder in [&plan.upper, &plan.work] {
        own_folder(folder, owner)?;
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
    mount()
}

/// A file beside [`Plan::upper`] that is there once that holds a whole copy of the image.
fn copy_marker(plan: &Plan) -> PathBuf {
    plan.upper.with_file_name("copied")
}

/// A copy of the image's folder for this Space alone, where no layer can be laid over it: the
/// file system of `AIRLOCK_HOME` may be a layer itself, as inside of another container.
fn copy(plan: &Plan) -> Result<OwnedFd, MinderError> {
    let host = MinderError::host;
    let marker = copy_marker(plan);
    if !marker.exists() {
        // A copy that was cut short is made again; no Space has changed it yet.
        let mut from = plan.lower.clone().into_os_string();
        from.push("/.");
        let copied = Command::new("cp")
            .args(["--archive", "--reflink=auto", "--"])
            .arg(from)
            .arg(&plan.upper)
            .stdin(Stdio::null())
            .status()
            .map_err(host("copy the image's files"))?;
        if !copied.success() {
            return Err(host("copy the image's files")(io::Error::other(
                copied.to_string(),
            )));
        }
        fs::write(marker, "").map_err(host("finish the copy of the image"))?;
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(CWD, &plan.upper, flags)
        .map_err(|errno| host("use the copy of the image")(errno.into()))
}

/// Makes `folder` and gives it to `owner`, the Space's root.
fn own_folder(folder: &Path, owner: Option<u32>) -> Result<(), Errno> {
    match rustix::fs::mkdir(folder, Mode::from_raw_mode(0o755)) {
        // The umask has no say.
        Ok(()) => rustix::fs::chmod(folder, Mode::from_raw_mode(0o755))?,
        Err(Errno::EXIST) => return Ok(()),
        Err(errno) => return Err(errno),
    }
    if let Some(id) = owner {
        let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
        rustix::fs::chown(folder, Some(uid), Some(gid))?;
    }
    Ok(())
}
