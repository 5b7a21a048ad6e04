//! What the services share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use airlock_wire::{Fault, FaultKind};
use tokio::sync::watch;

use crate::process::Processes;
use crate::server::{Access, Role};
use crate::users::{User, Users};

/// What the services share.
#[derive(Debug)]
pub struct Shared {
    /// Who may call.
    pub access: Access,
    /// What guestd is here.
    pub role: Role,
    /// There is a lane.
    pub has_lane: bool,
    /// When this guestd came up.
    pub started: Instant,
    /// The commands that were started.
    pub processes: Processes,
    /// Whether and how it shall end.
    pub ending: EndingSwitch,
    defaults: Mutex<Defaults>,
}

/// What `Init` sets, and every command and path starts from.
#[derive(Debug, Clone, Default)]
pub struct Defaults {
    /// `Init` was called.
    pub initialized: bool,
    /// Environment of every command.
    pub env: HashMap<String, String>,
    /// User of commands and files. Empty: guestd's own.
    pub user: String,
    /// Working folder of commands. Empty: the user's home.
    pub workdir: String,
    /// Free words of whoever made the Space.
    pub labels: HashMap<String, String>,
}

impl Shared {
    pub(crate) fn new(access: Access, role: Role, cgroup: Option<PathBuf>, has_lane: bool) -> Self {
        Self {
            access,
            role,
            has_lane,
            started: Instant::now(),
            processes: Processes::new(cgroup),
            ending: EndingSwitch::default(),
            defaults: Mutex::default(),
        }
    }

    /// The defaults in force.
    pub fn defaults(&self) -> MutexGuard<'_, Defaults> {
        self.defaults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The user whose home relative paths start in and who owns new files.
    pub fn default_user(&self) -> Result<User, Fault> {
        let name = self.defaults().user.clone();
        find_user(&name)
    }

    /// Owner of new files, when it is not simply guestd's own user.
    pub fn new_owner(&self, user: &User) -> Option<(u32, u32)> {
        let own = rustix::process::geteuid().as_raw();
        (user.uid != own).then_some((user.uid, user.gid))
    }
}

/// The user called `name`; guestd's own when it is empty.
pub(crate) fn find_user(name: &str) -> Result<User, Fault> {
    let users = Users::load();
    if name.is_empty() {
        return Ok(users.current());
    }
    users
        .find(name)
        .map_err(|error| Fault::new(FaultKind::InvalidArgument, error.to_string()))
}

/// Which way the machine shall go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// guestd ends; as the service of a machine it is started again.
    Stop,
    /// The machine goes off.
    PowerOff,
    /// The machine starts anew.
    Reboot,
}

/// Lets a call end the server.
#[derive(Debug)]
pub struct EndingSwitch(watch::Sender<Option<(Ending, Duration)>>);

impl Default for EndingSwitch {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl EndingSwitch {
    /// Asks for an end, with a time for commands to finish in. The first one counts.
    pub fn ask(&self, ending: Ending, grace: Duration) {
        self.0.send_if_modified(|asked| {
            let first = asked.is_none();
            asked.get_or_insert((ending, grace));
            first
        });
    }

    /// Waits until an end is asked for.
    pub async fn asked(&self) -> Ending {
        let mut watcher = self.0.subscribe();
        let asked = watcher
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|asked| *asked);
        match asked {
            Some((ending, _)) => ending,
            // The sender is borrowed for as long as this waits.
            None => std::future::pending().await,
        }
    }

    /// The time that commands get to finish in.
    pub fn grace(&self) -> Duration {
        self.0.borrow().map_or(Duration::ZERO, |(_, grace)| grace)
    }
}
