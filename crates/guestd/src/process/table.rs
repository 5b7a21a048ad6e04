//! The commands of this guestd: those that run, and the last ones that ended.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use airlock_wire::cua::v1::ProcessSelector;
use airlock_wire::cua::v1::process_selector::Selector;
use airlock_wire::{Fault, FaultKind};
use rustix::process::Signal;

use super::command::Command;

/// Ended commands that can still be asked about.
const MAX_ENDED: usize = 256;
/// How long killed commands get to vanish when guestd ends.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The commands of this guestd.
#[derive(Debug)]
pub struct Processes {
    table: Mutex<Table>,
    cgroup: Option<PathBuf>,
    /// Held while a start that must not happen twice is under way.
    pub(super) idempotent_start: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Table {
    /// In the order of their start.
    commands: Vec<Arc<Command>>,
    epoch: u64,
}

impl Processes {
    pub(crate) fn new(cgroup: Option<PathBuf>) -> Self {
        Self {
            table: Mutex::default(),
            cgroup,
            idempotent_start: tokio::sync::Mutex::default(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where commands get cgroups of their own.
    pub(super) fn cgroup(&self) -> Option<&Path> {
        self.cgroup.as_deref()
    }

    /// Commands that run now.
    pub(crate) fn running(&self) -> usize {
        self.table()
            .commands
            .iter()
            .filter(|command| command.is_running())
            .count()
    }

    pub(super) fn add(&self, command: Arc<Command>) {
        let mut table = self.table();
        table.commands.push(command);
        let is_ended = |command: &Arc<Command>| !command.is_running();
        let ended = table
            .commands
            .iter()
            .filter(|command| is_ended(command))
            .count();
        let mut surplus = ended.saturating_sub(MAX_ENDED);
        table.commands.retain(|command| {
            let forget = surplus > 0 && is_ended(command);
            surplus -= usize::from(forget);
            !forget
        });
    }

    /// All commands, in the order of their start.
    pub(super) fn all(&self) -> Vec<Arc<Command>> {
        self.table().commands.clone()
    }

    /// The newest command that fits: numbers and tags may be used again.
    pub(super) fn find(&self, selector: Option<ProcessSelector>) -> Result<Arc<Command>, Fault> {
        let Some(selector) = selector.and_then(|selector| selector.selector) else {
            return Err(Fault::new(
                FaultKind::InvalidArgument,
                "no process was named",
            ));
        };
        let found = match &selector {
            Selector::Pid(pid) => self.newest(|command| command.pid == *pid),
            Selector::Tag(tag) => self.newest(|command| command.options.tag == *tag),
        };
        found.ok_or_else(|| {
            let message = match selector {
                Selector::Pid(pid) => {
                    format!("no command with process number {pid} was started here")
                }
                Selector::Tag(tag) => format!("no command with tag {tag:?} was started here"),
            };
            Fault::new(FaultKind::ProcessNotFound, message)
        })
    }

    pub(super) fn find_request(&self, request_id: &str) -> Option<Arc<Command>> {
        self.newest(|command| command.options.request_id == request_id)
    }

    fn newest(&self, fits: impl Fn(&Command) -> bool) -> Option<Arc<Command>> {
        self.table()
            .commands
            .iter()
            .rev()
            .find(|command| fits(command))
            .cloned()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.table().epoch
    }

    /// The epoch that a start belongs to; zero means the one in force.
    pub(super) fn check_epoch(&self, epoch: u64) -> Result<u64, Fault> {
        let current = self.epoch();
        if epoch != 0 && epoch < current {
            return Err(stale(epoch, current));
        }
        Ok(epoch.max(current))
    }

    /// Begins `epoch`; gives the commands of earlier ones that still run.
    pub(super) fn advance(&self, epoch: u64) -> Result<Vec<Arc<Command>>, Fault> {
        let mut table = self.table();
        if epoch < table.epoch {
            return Err(stale(epoch, table.epoch));
        }
        table.epoch = epoch;
        let earlier = table.commands.iter();
        Ok(earlier
            .filter(|command| command.is_running() && command.options.epoch < epoch)
            .cloned()
            .collect())
    }

    /// Ends all commands: asks, waits for at most `grace`, kills.
    pub(crate) async fn shut_down(&self, grace: Duration) {
        let running: Vec<_> = self
            .all()
            .into_iter()
            .filter(|command| command.is_running())
            .collect();
        let all_ended = async || {
            for command in &running {
                command.ended().await;
            }
        };
        for (signal, patience) in [(Signal::TERM, grace), (Signal::KILL, LAST_WAIT)] {
            for command in &running {
                command.signal(signal, true);
            }
            if tokio::time::timeout(patience, all_ended()).await.is_ok() {
                return;
            }
        }
    }
}

fn stale(epoch: u64, current: u64) -> Fault {
    let message = format!("epoch {epoch} is over, {current} is in force");
    Fault::new(FaultKind::StaleEpoch, message).with("current_epoch", current)
}
