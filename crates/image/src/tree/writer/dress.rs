//! Gives what was written its owner, mode and time.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{
    AtFlags, Gid, Mode, Timespec, Timestamps, Uid, chmodat, chownat, fchmod, fchown, fstat,
    futimens, statat, utimensat,
};
use rustix::io::Errno;

use crate::tree::owner::RecordedOwner;
use crate::tree::writer::{Meta, TreeWriter};

impl TreeWriter<'_> {
    /// Gives an open file its owner, mode and time; in this order, since a new owner loses bits.
    pub(super) fn dress(&mut self, file: impl AsFd, meta: Meta, is_folder: bool) -> io::Result<()> {
        if let Some((uid, gid)) = self.owner(meta) {
            fchown(&file, Some(uid), Some(gid))?;
        }
        let mode = self.ownership.mode_on_host(meta.mode & 0o7777, is_folder);
        fchmod(&file, Mode::from_raw_mode(mode))?;
        if let Some(times) = times(meta) {
            futimens(&file, &times)?;
        }
        if self.ownership.is_recorded() {
            self.owners.push(RecordedOwner::of(&fstat(&file)?, meta));
        }
        Ok(())
    }

    /// The same for what cannot be opened, by its name in the folder entered last.
    pub(super) fn dress_name(
        &mut self,
        name: &OsStr,
        meta: Meta,
        mode: Option<Mode>,
    ) -> Result<(), Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if let Some((uid, gid)) = self.owner(meta) {
            chownat(self.here(), name, Some(uid), Some(gid), flags)?;
        }
        if let Some(mode) = mode {
            // The writer has just made it, in a folder that nobody else can enter.
            chmodat(self.here(), name, mode, AtFlags::empty())?;
        }
        if let Some(times) = times(meta) {
            utimensat(self.here(), name, &times, flags)?;
        }
        if self.ownership.is_recorded() {
            let stat = statat(self.here(), name, flags)?;
            self.owners.push(RecordedOwner::of(&stat, meta));
        }
        Ok(())
    }

    fn owner(&mut self, meta: Meta) -> Option<(Uid, Gid)> {
        let owner = self.ownership.on_host(meta.uid, meta.gid)?;
        self.totals.foreign_owners += u64::from(owner.is_foreign);
        Some((owner.uid, owner.gid))
    }
}

fn times(meta: Meta) -> Option<Timestamps> {
    let (seconds, nanoseconds) = meta.modified?;
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: i64::from(nanoseconds.min(999_999_999)),
    };
    Some(Timestamps {
        last_access: time,
        last_modification: time,
    })
}
