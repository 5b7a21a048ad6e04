//! Slots of the lane for as long as they are needed, and a little longer.
//!
//! A lease costs three round trips, so it is kept between transfers that follow each other
//! closely; but slots are few, so an idle one is given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use airlock_engine::Engine;
use airlock_model::SpaceName;
use tokio::sync::Mutex;

use crate::connect;
use crate::transfer::{Connection, LaneSession, LaneUnusable};

/// How long slots are kept after the last transfer.
const IDLE: Duration = Duration::from_millis(500);
/// How long a transfer waits for slots before it takes the network.
const LEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// The lane of one connection.
pub(super) struct LaneKeep {
    engine: Engine,
    name: SpaceName,
    connection: Connection,
    session: Mutex<Option<LaneSession>>,
    /// Counts uses, so that an idle timer knows whether there was one since it was set.
    uses: AtomicU64,
}

impl LaneKeep {
    pub(super) fn new(engine: Engine, name: SpaceName, connection: Connection) -> Self {
        Self {
            engine,
            name,
            connection,
            session: Mutex::new(None),
            uses: AtomicU64::new(0),
        }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// A proven session; concurrent transfers share one.
    pub(super) async fn session(&self) -> Result<LaneSession, LaneUnusable> {
        let mut kept = self.session.lock().await;
        self.uses.fetch_add(1, Ordering::Relaxed);
        // One that broke is proven anew, with other slots.
        if let Some(session) = kept.as_ref().filter(|session| session.broken().is_none()) {
            return Ok(session.clone());
        }
        *kept = None;
        let lease = connect::lease(&self.engine, &self.name);
        let lease = match tokio::time::timeout(LEASE_TIMEOUT, lease).await {
            Ok(Ok(lease)) => lease,
            Ok(Err(error)) => return Err(LaneUnusable::new(error.to_string())),
            Err(_elapsed) => return Err(LaneUnusable::new("all slots of the lane are taken")),
        };
        let session = LaneSession::attach(&self.connection, lease).await?;
        *kept = Some(session.clone());
        Ok(session)
    }

    /// Gives the slots back, unless they are used again soon.
    pub(super) fn release_when_idle(self: &Arc<Self>) {
        let used = self.uses.load(Ordering::Relaxed);
        let lane = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(IDLE).await;
            let Some(lane) = lane.upgrade() else { return };
            let mut kept = lane.session.lock().await;
            if lane.uses.load(Ordering::Relaxed) == used {
                // Transfers that still run hold clones; the lease ends with the last of them.
                *kept = None;
            }
        });
    }
}
