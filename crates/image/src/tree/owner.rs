//! Who owns the files of a tree on the host.

use rustix::fs::{Gid, Stat, Uid};

use crate::tree::writer::Meta;

/// How many ids a Space's id map has; what an image gives to others belongs to nobody.
pub const MAP_IDS: u32 = 65_536;

const NOBODY: u32 = 65_534;

/// Who owns the files of a tree on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owners {
    /// The image's id N becomes base + N; needs root, or root of a user name space.
    Shifted {
        /// What the image's root is on the host.
        uid_base: u32,
        /// What the image's root group is on the host.
        gid_base: u32,
    },
    /// Everything belongs to the caller, for a Space whose id map has a single id.
    Caller,
}

impl Owners {
    /// What tells trees of different owners apart in their names.
    pub(crate) fn tag(self) -> String {
        match self {
            Self::Shifted { uid_base, gid_base } if uid_base == gid_base => uid_base.to_string(),
            Self::Shifted { uid_base, gid_base } => format!("{uid_base}-{gid_base}"),
            Self::Caller => "own".to_owned(),
        }
    }
}

/// What a writer does about owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// As a Space wants it.
    Of(Owners),
    /// As the image says it; needs root.
    Exact,
    /// Everything stays the caller's, and the owners are written down for `fakeroot`.
    Recorded,
}

/// The owner of a file on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostOwner {
    pub(crate) uid: Uid,
    pub(crate) gid: Gid,
    /// Whether an id is outside of the map and was replaced.
    pub(crate) is_foreign: bool,
}

impl Ownership {
    /// The owner to set; `None` leaves the caller's.
    pub(crate) fn on_host(self, uid: u32, gid: u32) -> Option<HostOwner> {
        let (uid, gid, is_foreign) = match self {
            Self::Of(Owners::Shifted { uid_base, gid_base }) => {
                let is_foreign = uid >= MAP_IDS || gid >= MAP_IDS;
                (shifted(uid_base, uid), shifted(gid_base, gid), is_foreign)
            }
            Self::Exact => (uid, gid, false),
            Self::Of(Owners::Caller) | Self::Recorded => return None,
        };
        Some(HostOwner {
            uid: Uid::from_raw(uid),
            gid: Gid::from_raw(gid),
            is_foreign,
        })
    }

    /// The mode to set for one that the image says.
    pub(crate) fn mode_on_host(self, mode: u32, is_folder: bool) -> u32 {
        match self {
            // A file that its owner must not read, as some images have, could not be copied on.
            Self::Recorded if is_folder => mode | 0o700,
            Self::Recorded => mode | 0o600,
            Self::Of(_) | Self::Exact => mode,
        }
    }

    pub(crate) fn is_recorded(self) -> bool {
        match self {
            Self::Recorded => true,
            Self::Of(_) | Self::Exact => false,
        }
    }
}

/// An id past the map would belong to somebody else on the host, so it becomes nobody.
fn shifted(base: u32, id: u32) -> u32 {
    base.saturating_add(if id < MAP_IDS { id } else { NOBODY })
}

/// The owner that a file should have, by its place on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordedOwner {
    device: u64,
    inode: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    links: u64,
}

impl RecordedOwner {
    pub(crate) fn of(stat: &Stat, meta: Meta) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            // The file on this disk may be more open than the image's, so that it can be read.
            mode: (stat.st_mode & !0o7777) | (meta.mode & 0o7777),
            uid: meta.uid,
            gid: meta.gid,
            links: stat.st_nlink,
        }
    }

    /// The line by which `fakeroot -i` learns of it.
    pub(crate) fn line(&self) -> String {
        let Self {
            device,
            inode,
            mode,
            uid,
            gid,
            links,
        } = self;
        format!(
            "dev={device:x},ino={inode},mode={mode:o},uid={uid},gid={gid},nlink={links},rdev=0\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_move_by_the_base_and_never_out_of_the_map() {
        let owners = Owners::Shifted {
            uid_base: 100_000,
            gid_base: 200_000,
        };
        let on_host = |uid, gid| {
            let owner = Ownership::Of(owners).on_host(uid, gid).unwrap();
            (owner.uid.as_raw(), owner.gid.as_raw(), owner.is_foreign)
        };
        assert_eq!(on_host(0, 0), (100_000, 200_000, false));
        assert_eq!(on_host(33, 65_535), (100_033, 265_535, false));
        assert_eq!(on_host(65_536, 0), (165_534, 200_000, true));
        assert_eq!(on_host(0, u32::MAX), (100_000, 265_534, true));
        assert_eq!(Ownership::Of(Owners::Caller).on_host(5, 5), None);
    }

    #[test]
    fn tags_differ() {
        let shifted = |uid_base, gid_base| Owners::Shifted { uid_base, gid_base }.tag();
        assert_eq!(shifted(100_000, 100_000), "100000");
        assert_eq!(shifted(100_000, 200_000), "100000-200000");
        assert_eq!(Owners::Caller.tag(), "own");
    }
}
