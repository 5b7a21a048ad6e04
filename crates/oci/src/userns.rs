//! Becoming root of a user namespace, where an ordinary user may own files of many ids.

use std::io;

use rustix::process::{Gid, Signal, Uid};
use rustix::thread::UnshareFlags;

use crate::sys;

/// Why there is no user namespace.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// The host forbids it.
    #[error("the host does not let Airlock make a user namespace")]
    Forbidden(#[source] io::Error),
    /// Nobody mapped its ids.
    #[error("nobody mapped the ids of the user namespace")]
    Unmapped(#[source] io::Error),
    /// The ids were mapped and cannot be taken.
    #[error("cannot become root of the user namespace")]
    Become(#[source] io::Error),
    /// The parent died meanwhile.
    #[error("the parent is gone")]
    Orphaned,
}

impl EnterError {
    /// What a person can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Forbidden(_) => {
                "see sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces and \
                 kernel.apparmor_restrict_unprivileged_userns; --kind vm needs none"
            }
            Self::Unmapped(_) | Self::Become(_) | Self::Orphaned => {
                "the ranges in /etc/subuid and /etc/subgid must be yours alone; --kind vm needs none"
            }
        }
    }
}

/// Enters a user namespace and becomes its root, and dies with the parent from then on.
///
/// `ask` is called in between: it asks the parent to map the ids ([`crate::ids::map`]) and waits
/// until that is done. The process must have one thread.
pub fn enter(ask: impl FnOnce() -> io::Result<()>) -> Result<(), EnterError> {
    let parent = rustix::process::getppid();
    sys::unshare(UnshareFlags::NEWUSER).map_err(EnterError::Forbidden)?;
    ask().map_err(EnterError::Unmapped)?;
    let (uid, gid) = (Uid::ROOT, Gid::ROOT);
    rustix::thread::set_thread_res_gid(gid, gid, gid)
        .and_then(|()| rustix::thread::set_thread_res_uid(uid, uid, uid))
        .map_err(|errno| EnterError::Become(errno.into()))?;
    // The kernel forgets the death signal when ids change.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| EnterError::Become(errno.into()))?;
    if rustix::process::getppid() == parent {
        Ok(())
    } else {
        Err(EnterError::Orphaned)
    }
}
