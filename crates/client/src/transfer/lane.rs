//! Leased slots of the lane, proven and shared by the transfers of one connection.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use airlock_digest::Digest;
use airlock_lane::LaneMemory;
use airlock_lane::proof::{Answer, Challenge, ProofError};
use airlock_model::size::MAX_SLOTS_PER_TRANSFER;
use airlock_wire::Fault;
use airlock_wire::lane_v1::{AttachRequest, AttachResponse, Geometry};
use bytes::Bytes;
use tokio::sync::Notify;

use super::Connection;
use super::error::shown_text;

/// How long the proof may take; it is one round trip.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);

/// Slots that the keeper leased to this process.
pub struct LaneLease {
    /// Its name; whoever knows it may use its slots.
    pub id: [u8; 16],
    /// The slots.
    pub slots: Vec<u32>,
    /// The memory they lie in.
    pub memory: LaneMemory,
    /// What keeps the lease alive: it ends when this is dropped.
    pub hold: Box<dyn Any + Send + Sync>,
}

impl LaneLease {
    /// A lease as the keeper handed it out; `hold` keeps it alive.
    pub fn new(
        id: [u8; 16],
        slots: Vec<u32>,
        memory: LaneMemory,
        hold: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            id,
            slots,
            memory,
            hold,
        }
    }
}

impl fmt::Debug for LaneLease {
    /// Leaves out the name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneLease")
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

/// Why the lane is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct LaneUnusable {
    /// In words that a person understands.
    pub reason: String,
}

impl LaneUnusable {
    /// The lane is not used, because `reason`.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
        }
    }
}

/// A lane that was proven over one connection; a clone is the same session.
#[derive(Debug, Clone)]
pub struct LaneSession {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    lease: LaneLease,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug)]
struct State {
    free: Vec<u32>,
    /// Transfers that have no slot yet.
    waiting: usize,
    /// What went wrong with the lane, once something did.
    broken: Option<String>,
}

impl LaneSession {
    /// Proves in both directions, on the first and the last slot, that this process and the Space
    /// see the same memory.
    pub async fn attach(connection: &Connection, lease: LaneLease) -> Result<Self, LaneUnusable> {
        let (Some(first), Some(last)) = (lease.slots.first(), lease.slots.last()) else {
            return Err(LaneUnusable::new("the lease has no slots"));
        };
        let mut prove = vec![*first, *last];
        prove.dedup();
        let challenges = prove
            .iter()
            .map(|slot| Challenge::write(&lease.memory, *slot))
            .collect::<Result<Vec<_>, ProofError>>()
            .map_err(|error| LaneUnusable::new(error.to_string()))?;
        let request = AttachRequest {
            lease: Bytes::copy_from_slice(&lease.id),
            slots: lease.slots.clone(),
            prove,
        };
        let mut client = connection.lane();
        let answer = tokio::time::timeout(ATTACH_TIMEOUT, client.attach(request))
            .await
            .map_err(|_| LaneUnusable::new("the Space did not prove the lane in time"))?
            .map_err(|status| LaneUnusable::new(shown_text(&Fault::from_status(&status).message)))?
            .into_inner();
        if answer.geometry != Some(Geometry::from(lease.memory.geometry())) {
            return Err(LaneUnusable::new("the Space sees a lane of another layout"));
        }
        let answers = answers(&answer);
        for challenge in challenges {
            challenge
                .check(&lease.memory, &answers)
                .map_err(|error| LaneUnusable::new(error.to_string()))?;
        }
        let state = State {
            free: lease.slots.clone(),
            waiting: 0,
            broken: None,
        };
        Ok(Self {
            shared: Arc::new(Shared {
                lease,
                state: Mutex::new(state),
                freed: Notify::new(),
            }),
        })
    }

    pub(super) fn lease_id(&self) -> Bytes {
        Bytes::copy_from_slice(&self.shared.lease.id)
    }

    pub(super) fn memory(&self) -> &LaneMemory {
        &self.shared.lease.memory
    }

    /// Why the lane must not be used any more, once it failed.
    pub(crate) fn broken(&self) -> Option<String> {
        self.shared.lock().broken.clone()
    }

    /// Keeps later transfers off a lane that failed.
    pub(super) fn set_broken(&self, reason: &str) {
        self.shared
            .lock()
            .broken
            .get_or_insert_with(|| reason.to_owned());
    }

    /// Takes up to `most` slots, at least one; waits while other transfers hold all of them.
    pub(super) async fn take(&self, most: usize) -> HeldSlots {
        let most = most.clamp(1, MAX_SLOTS_PER_TRANSFER);
        let mut waiting = None;
        loop {
            let freed = self.shared.freed.notified();
            if let Some(slots) = self.try_take(most) {
                return HeldSlots {
                    session: self.clone(),
                    slots,
                };
            }
            waiting.get_or_insert_with(|| Waiting::new(self));
            freed.await;
        }
    }

    fn try_take(&self, most: usize) -> Option<Vec<u32>> {
        let mut state = self.shared.lock();
        let count = state.free.len().min(most);
        (count > 0).then(|| state.free.drain(..count).collect())
    }

    fn give_back(&self, slot: u32) {
        self.shared.lock().free.push(slot);
        self.shared.freed.notify_one();
    }

    /// Whether another transfer has no slot at all.
    fn others_wait(&self) -> bool {
        self.shared.lock().waiting > 0
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole at every unlock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a transfer as waiting, as long as it lives.
struct Waiting<'a>(&'a LaneSession);

impl<'a> Waiting<'a> {
    fn new(session: &'a LaneSession) -> Self {
        session.shared.lock().waiting += 1;
        Self(session)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.shared.lock();
        state.waiting -= 1;
        // A wake-up that this one got and does not use goes to the next.
        let pass_on = state.waiting > 0 && !state.free.is_empty();
        drop(state);
        if pass_on {
            self.0.shared.freed.notify_one();
        }
    }
}

/// Slots of one transfer; they go back when this is dropped.
#[derive(Debug)]
pub(super) struct HeldSlots {
    session: LaneSession,
    slots: Vec<u32>,
}

impl HeldSlots {
    pub(super) fn session(&self) -> &LaneSession {
        &self.session
    }

    pub(super) fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// Gives `slot`, which is not in use, to a transfer that waits; says whether it is gone.
    ///
    /// A transfer keeps its last slot, so that every one goes on.
    pub(super) fn share(&mut self, slot: u32) -> bool {
        if self.slots.len() < 2 || !self.session.others_wait() {
            return false;
        }
        self.slots.retain(|other| *other != slot);
        self.session.give_back(slot);
        true
    }

    /// Never gives the slots back: the Space may still write to them.
    pub(super) fn forget(mut self) {
        self.slots.clear();
    }
}

impl Drop for HeldSlots {
    fn drop(&mut self) {
        for slot in self.slots.drain(..) {
            self.session.give_back(slot);
        }
    }
}

fn answers(response: &AttachResponse) -> Vec<Answer> {
    let proofs = response.proofs.iter();
    proofs
        .filter_map(|proof| {
            Some(Answer {
                slot: proof.slot,
                read: Digest::try_from(&proof.read_sha256[..]).ok()?,
                written: Digest::try_from(&proof.written_sha256[..]).ok()?,
            })
        })
        .collect()
}
