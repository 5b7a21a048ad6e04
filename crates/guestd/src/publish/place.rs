//! Where a file will be: a name in an opened folder.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::folders::make_dirs;
use super::{PublishError, PublishOptions};

/// Links followed at the end of a path before it counts as a loop, as many as the kernel does.
const MAX_LINKS: usize = 40;

/// A name in an opened folder.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) dir: OwnedFd,
    pub(super) name: OsString,
    pub(super) path: PathBuf,
}

/// The file that is in the destination's place.
pub(super) struct Old {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Place {
    /// Opens the folder of `dest`, following links at the end of the path as a shell's `>` does.
    pub(super) fn find(dest: &Path, options: &PublishOptions) -> Result<Self, PublishError> {
        let mut path = dest.to_owned();
        for _ in 0..MAX_LINKS {
            let (parent, name) = split(&path)?;
            let dir = open_parent(&parent, options)?;
            let place = Self { dir, name, path };
            let Some(target) = place.link_target(options)? else {
                if place.look()?.is_some() && options.create_new {
                    return Err(place.exists());
                }
                return Ok(place);
            };
            path = parent.join(target);
        }
        Err(PublishError::LinkLoop {
            path: dest.to_owned(),
        })
    }

    /// Where the link in this place leads; nothing when there is no link.
    pub(super) fn link_target(
        &self,
        options: &PublishOptions,
    ) -> Result<Option<OsString>, PublishError> {
        match fs::readlinkat(&self.dir, &self.name, Vec::new()) {
            Ok(_) if options.create_new => Err(self.exists()),
            Ok(target) => Ok(Some(OsString::from_vec(target.into_bytes()))),
            Err(Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.error("look at", errno)),
        }
    }

    /// The file that is here now; refuses what a rename must not replace.
    pub(super) fn look(&self) -> Result<Option<Old>, PublishError> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = match fs::statx(&self.dir, &self.name, flags, StatxFlags::BASIC_STATS) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.error("look at", errno)),
        };
        let path = || self.path.clone();
        match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::Directory => return Err(PublishError::IsDirectory { path: path() }),
            FileType::RegularFile | FileType::Symlink => {}
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => return Err(PublishError::NotRegular { path: path() }),
        }
        if stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
            return Err(PublishError::MountPoint { path: path() });
        }
        Ok(Some(Old {
            mode: u32::from(stat.stx_mode) & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
        }))
    }

    /// A file without a name in this folder, where the file system can make one.
    pub(super) fn nameless(&self) -> Option<File> {
        /// Without /proc a nameless file cannot be given a name later.
        static LINKABLE: LazyLock<bool> = LazyLock::new(|| Path::new("/proc/self/fd").is_dir());
        if !*LINKABLE {
            return None;
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        // Whatever the reason of a failure, the attempt with a name meets it again and names it.
        let fd = fs::openat(&self.dir, ".", flags, Mode::RUSR | Mode::WUSR).ok()?;
        Some(File::from(fd))
    }

    pub(super) fn named(&self) -> Result<(File, Option<OsString>), PublishError> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR;
        let (fd, name) = self.with_temporary_name(|name| {
            let mode = Mode::RUSR | Mode::WUSR;
            fs::openat(&self.dir, name, flags | OFlags::CLOEXEC, mode)
        })?;
        Ok((File::from(fd), Some(name)))
    }

    /// Runs `make` with fresh names until one is not taken.
    pub(super) fn with_temporary_name<T>(
        &self,
        make: impl Fn(&OsStr) -> Result<T, Errno>,
    ) -> Result<(T, OsString), PublishError> {
        loop {
            let mut random = [0; 4];
            getrandom::fill(&mut random).map_err(|_| self.error("draw a name for", Errno::IO))?;
            let name = OsString::from(format!(".airlock-{}.part", hex::encode(random)));
            match make(&name) {
                Err(Errno::EXIST) => {}
                result => {
                    return result
                        .map(|made| (made, name))
                        .map_err(|e| self.error("create", e));
                }
            }
        }
    }

    pub(super) fn link(&self, file: &File, name: &OsStr) -> Result<(), Errno> {
        let source = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::linkat(CWD, source, &self.dir, name, AtFlags::SYMLINK_FOLLOW)
    }

    pub(super) fn sync_dir(&self) -> Result<(), PublishError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::openat(&self.dir, ".", flags, Mode::empty())
            .and_then(fs::fsync)
            .map_err(|e| self.error("sync the folder of", e))
    }

    pub(super) fn exists(&self) -> PublishError {
        PublishError::Exists {
            path: self.path.clone(),
        }
    }

    pub(super) fn error(&self, step: &'static str, errno: Errno) -> PublishError {
        PublishError::io(step, &self.path, errno)
    }
}

/// Cuts `path` into the folder and the name in it.
fn split(path: &Path) -> Result<(PathBuf, OsString), PublishError> {
    let bytes = path.as_os_str().as_bytes();
    let (parent, name) = match bytes.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (&b"/"[..], &bytes[1..]),
        Some(slash) => (&bytes[..slash], &bytes[slash + 1..]),
        None => (&b"."[..], bytes),
    };
    match name {
        b"" if path.is_dir() || bytes == b"/" => Err(PublishError::IsDirectory {
            path: path.to_owned(),
        }),
        b"" => Err(PublishError::NotADirectory {
            path: path.to_owned(),
        }),
        b"." | b".." => Err(PublishError::IsDirectory {
            path: path.to_owned(),
        }),
        name => Ok((
            PathBuf::from(OsStr::from_bytes(parent)),
            OsStr::from_bytes(name).to_owned(),
        )),
    }
}

fn open_parent(parent: &Path, options: &PublishOptions) -> Result<OwnedFd, PublishError> {
    if options.create_parents {
        make_dirs(parent, 0o755, options.new_owner)?;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::open(parent, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOTDIR => PublishError::NotADirectory {
            path: parent.to_owned(),
        },
        errno => PublishError::io("open the folder", parent, errno),
    })
}
