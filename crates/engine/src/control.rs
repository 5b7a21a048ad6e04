//! Start, stop and delete.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use airlock_keeper::protocol::{Request, Response, Status, TransportError};
use airlock_keeper::read_state;
use airlock_model::{ImageName, Kind, SpaceName, SpaceState};
use airlock_oci::cgroup::{self, Support};
use tokio_util::sync::CancellationToken;

use crate::record::Record;
use crate::{Engine, EngineError, EventSink, SpaceInfo, mapped};

/// How long a Space may take to shut down by itself.
const STOP_GRACE: Duration = Duration::from_secs(20);
/// How long a keeper may take to answer a request to pull the plug before it is killed.
const PLUG_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a killed process may take to be gone.
///
/// A Space full of processes takes seconds: each gives its memory back by itself.
const GONE_TIMEOUT: Duration = Duration::from_secs(60);

impl Engine {
    /// Starts a Space that is not running. Its image's kernel and guestd may be newer than at the
    /// last start; its disk is its own.
    pub async fn start(
        &self,
        name: &SpaceName,
        events: EventSink<'_>,
        cancel: &CancellationToken,
    ) -> Result<SpaceInfo, EngineError> {
        let record = Record::read(&self.home, name)?;
        let info = self.info(name)?;
        // A keeper that wrote its last word is waited for below.
        let has_ended = matches!(info.state, SpaceState::Stopped | SpaceState::Crashed);
        if info.pid.is_some() && !has_ended {
            return Err(EngineError::AlreadyRunning {
                name: name.clone(),
                state: info.state,
            });
        }
        self.kill_leftovers(name).await?;
        let base = self.base(&record, events, cancel).await?;
        self.launch(&record, &base, false, events, cancel).await?;
        self.info(name)
    }

    /// Shuts a Space down: asks it first, and pulls the plug when it does not answer, or at once
    /// with `force`. Returns whether it was running.
    pub async fn stop(&self, name: &SpaceName, force: bool) -> Result<bool, EngineError> {
        let info = self.info(name)?;
        // A state file that cannot be read does not say that no keeper lives.
        let unknown = read_state(&self.home.space(name).state()).is_err();
        if info.pid.is_none() && !(unknown && self.keeper(name).await.is_ok()) {
            return Ok(false);
        }
        let grace = if force { Duration::ZERO } else { STOP_GRACE };
        self.end_keeper(name, grace).await?;
        Ok(true)
    }

    /// Ends and removes a Space, whatever state it is in. Returns whether there was one.
    pub async fn delete(&self, name: &SpaceName) -> Result<bool, EngineError> {
        if !self.home.space(name).dir().exists() {
            return Ok(false);
        }
        let record = Record::read(&self.home, name).ok();
        self.end_keeper(name, Duration::ZERO).await?;
        self.remove_files(name)?;
        if let Some(record) = record {
            self.prune(&record.spec.image);
        }
        Ok(true)
    }

    /// Ends the keeper of `name`, if it has one, by its socket or by force.
    async fn end_keeper(&self, name: &SpaceName, grace: Duration) -> Result<(), EngineError> {
        let asked = tokio::time::timeout(grace + PLUG_TIMEOUT, self.ask_to_stop(name, grace)).await;
        match asked {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the keeper could not be asked to stop"),
            Err(_elapsed) => tracing::warn!(%name, "the keeper does not answer, killing it"),
        }
        self.kill_leftovers(name).await
    }

    async fn ask_to_stop(&self, name: &SpaceName, grace: Duration) -> Result<(), EngineError> {
        let transport = |source| EngineError::Keeper {
            name: name.clone(),
            source,
        };
        let mut keeper = self.keeper(name).await?;
        keeper
            .send(&Request::Stop { grace }, None)
            .await
            .map_err(transport)?;
        match keeper.receive::<Response>().await {
            // A keeper that ended right away has stopped the Space too.
            Ok((Response::Stopped, _)) | Err(TransportError::Closed | TransportError::Io(_)) => {}
            Ok((Response::Refused { reason }, _)) => {
                return Err(EngineError::Refused {
                    name: name.clone(),
                    reason,
                });
            }
            Ok((response, _)) => {
                let reason = format!("an answer to another question: {response:?}");
                return Err(EngineError::Refused {
                    name: name.clone(),
                    reason,
                });
            }
            Err(source) => return Err(transport(source)),
        }
        if let Ok(Some(status)) = read_state(&self.home.space(name).state()) {
            // The answer comes just before the keeper's end; its lock must be free after this.
            status.keeper.gone().await;
        }
        Ok(())
    }

    /// Kills what is left of the processes that `state.json` names, and waits until they are gone.
    async fn kill_leftovers(&self, name: &SpaceName) -> Result<(), EngineError> {
        // A file that cannot be read names nobody to kill.
        let Ok(Some(status)) = read_state(&self.home.space(name).state()) else {
            return Ok(());
        };
        let Status {
            keeper,
            machine,
            state,
            ..
        } = status;
        let place = Record::read(&self.home, name)
            .ok()
            .filter(|record| record.spec.kind == Kind::Container)
            .and_then(|record| Support::detect().place(&record.machine_id));
        if let Some(place) = &place {
            cgroup::release(place);
        }
        let clean = matches!(state, SpaceState::Stopped | SpaceState::Crashed);
        for process in [Some(keeper), machine].into_iter().flatten() {
            if clean && process == keeper {
                // It wrote its last word and is about to go by itself.
                if tokio::time::timeout(PLUG_TIMEOUT, process.gone())
                    .await
                    .is_ok()
                {
                    continue;
                }
            }
            process.kill().map_err(EngineError::KeeperStart)?;
            tokio::time::timeout(GONE_TIMEOUT, process.gone())
                .await
                .map_err(|_elapsed| EngineError::DoesNotEnd { name: name.clone() })?;
        }
        if let Some(place) = &place {
            cgroup::remove(place);
        }
        Ok(())
    }

    /// Removes what older builds of `image` left for Spaces that are gone by now.
    ///
    /// Best effort: what cannot be removed now is tried again with the next Space.
    fn prune(&self, image: &ImageName) {
        let catalog = self.catalog();
        let trees: HashSet<PathBuf> = self
            .names()
            .filter_map(|name| Record::read(&self.home, &name).ok()?.container)
            .map(|base| base.tree)
            .collect();
        let pruned = catalog.prune_trees(image, &|tree| trees.contains(tree));
        // A Space's own name for its root disk is a second link to it.
        let has_links = |root: &Path| fs_err::metadata(root).is_ok_and(|meta| meta.nlink() > 1);
        let pruned = pruned.and_then(|_| catalog.prune_roots(image, &has_links));
        if let Err(error) = pruned {
            tracing::debug!(%error, "cannot remove what older builds left");
        }
    }

    /// Removes the files of `name`: first out of the way, so that the name is free at once and
    /// a removal that is cut short is finished by the next sweep.
    pub(crate) fn remove_files(&self, name: &SpaceName) -> Result<(), EngineError> {
        let dir = self.home.space(name).dir().to_owned();
        let mut random = [0u8; 8];
        getrandom::fill(&mut random).map_err(|error| EngineError::KeeperStart(error.into()))?;
        let trash = self.home.trash(&hex::encode(random));
        match fs_err::rename(&dir, &trash) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(source) => {
                return Err(EngineError::File {
                    what: "remove",
                    path: dir,
                    source,
                });
            }
        }
        match mapped::remove(&trash) {
            Ok(()) => Ok(()),
            // Somebody else's sweep was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(EngineError::File {
                what: "remove",
                path: trash,
                source,
            }),
        }
    }
}
