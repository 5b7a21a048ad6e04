//! Which slots a caller's transfers may name, and the end of their use.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use airlock_model::LaneGeometry;
use airlock_wire::{Fault, FaultKind};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Bytes in the name of a lease.
const ID_BYTES: usize = 16;
/// Leases that can exist at once; each needs a slot of its own.
const MAX_LEASES: usize = LaneGeometry::STANDARD.slots as usize;
/// Ended leases that are remembered, so that a late message cannot revive one.
const MAX_ENDED: usize = 1024;

type LeaseId = [u8; ID_BYTES];

/// All leases of this lane.
#[derive(Default)]
pub(crate) struct Leases {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    live: HashMap<LeaseId, Arc<Lease>>,
    ended: VecDeque<LeaseId>,
}

/// One lease.
struct Lease {
    slots: BTreeSet<u32>,
    cancel: CancellationToken,
    uses: TaskTracker,
}

/// The right of one transfer to touch the slots of a lease, until dropped.
pub(crate) struct LeaseUse {
    lease: Arc<Lease>,
    _token: TaskTrackerToken,
}

impl LeaseUse {
    /// Fails when `slot` is none of the lease's.
    pub(crate) fn check(&self, slot: u32) -> Result<(), Fault> {
        if self.lease.slots.contains(&slot) {
            return Ok(());
        }
        Err(Fault::new(
            FaultKind::InvalidArgument,
            format!("slot {slot} is not part of the lease"),
        ))
    }

    /// Cancelled when the lease ends.
    pub(crate) fn cancelled(&self) -> CancellationToken {
        self.lease.cancel.clone()
    }
}

impl Leases {
    /// Makes a lease known, or takes it up again with the same slots.
    pub(crate) fn attach(&self, id: &[u8], slots: &[u32]) -> Result<(), Fault> {
        let id = lease_id(id)?;
        let slots: BTreeSet<u32> = slots.iter().copied().collect();
        let most = LaneGeometry::STANDARD.slots;
        if slots.is_empty() || slots.iter().any(|slot| *slot >= most) {
            return Err(Fault::new(
                FaultKind::InvalidArgument,
                format!("a lease has at least one slot, each below {most}"),
            ));
        }
        let mut state = self.lock();
        if state.ended.contains(&id) {
            return Err(ended());
        }
        if let Some(lease) = state.live.get(&id) {
            return if lease.slots == slots {
                Ok(())
            } else {
                Err(Fault::new(
                    FaultKind::InvalidArgument,
                    "the lease has other slots",
                ))
            };
        }
        if state.live.len() >= MAX_LEASES {
            return Err(Fault::new(
                FaultKind::LimitExceeded,
                format!("there are {MAX_LEASES} leases already"),
            ));
        }
        let lease = Lease {
            slots,
            cancel: CancellationToken::new(),
            uses: TaskTracker::new(),
        };
        state.live.insert(id, Arc::new(lease));
        Ok(())
    }

    /// Takes the right to touch the slots of a lease.
    pub(crate) fn begin_use(&self, id: &[u8]) -> Result<Arc<LeaseUse>, Fault> {
        let id = lease_id(id)?;
        let state = self.lock();
        let Some(lease) = state.live.get(&id) else {
            return Err(if state.ended.contains(&id) {
                ended()
            } else {
                Fault::new(
                    FaultKind::SessionNotFound,
                    "the lease is not attached to this guestd",
                )
            });
        };
        Ok(Arc::new(LeaseUse {
            _token: lease.uses.token(),
            lease: Arc::clone(lease),
        }))
    }

    /// Ends a lease; returns when nothing touches its slots any more.
    ///
    /// An unknown lease ends as well, so that it cannot come up later.
    pub(crate) async fn release(&self, id: &[u8]) -> Result<(), Fault> {
        let id = lease_id(id)?;
        let lease = {
            let mut state = self.lock();
            if !state.ended.contains(&id) {
                if state.ended.len() == MAX_ENDED {
                    state.ended.pop_front();
                }
                state.ended.push_back(id);
            }
            state.live.get(&id).map(Arc::clone)
        };
        if let Some(lease) = lease {
            lease.cancel.cancel();
            lease.uses.close();
            lease.uses.wait().await;
            self.lock().live.remove(&id);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lease_id(id: &[u8]) -> Result<LeaseId, Fault> {
    id.try_into().map_err(|_| {
        Fault::new(
            FaultKind::InvalidArgument,
            format!("a lease is named by {ID_BYTES} bytes, not {}", id.len()),
        )
    })
}

fn ended() -> Fault {
    Fault::new(FaultKind::SessionNotFound, "the lease has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &[u8] = &[1; ID_BYTES];

    #[tokio::test]
    async fn release_waits_for_the_last_use_and_nothing_comes_after() {
        let leases = Leases::default();
        leases.attach(A, &[0, 1]).unwrap();
        let held = leases.begin_use(A).unwrap();
        held.check(1).unwrap();
        assert!(held.check(2).is_err());

        let mut release = std::pin::pin!(leases.release(A));
        assert!(
            std::future::poll_fn(|cx| {
                std::task::Poll::Ready(release.as_mut().poll(cx).is_pending())
            })
            .await
        );
        assert!(held.cancelled().is_cancelled());
        drop(held);
        release.await.unwrap();

        assert!(leases.begin_use(A).is_err());
        assert!(leases.attach(A, &[0, 1]).is_err());
        leases.release(A).await.unwrap();
    }

    #[tokio::test]
    async fn memory_of_ended_leases_is_bounded() {
        let leases = Leases::default();
        for n in 0..2 * MAX_ENDED as u128 {
            leases.release(&n.to_le_bytes()).await.unwrap();
        }
        assert_eq!(leases.lock().ended.len(), MAX_ENDED);
    }

    #[test]
    fn what_makes_no_lease_is_refused() {
        let leases = Leases::default();
        assert!(leases.attach(&[1; 15], &[0]).is_err());
        assert!(leases.attach(A, &[]).is_err());
        assert!(leases.attach(A, &[64]).is_err());
        leases.attach(A, &[0]).unwrap();
        leases.attach(A, &[0]).unwrap();
        assert!(leases.attach(A, &[1]).is_err());
        assert!(leases.begin_use(&[2; ID_BYTES]).is_err());
        for n in 1..MAX_LEASES as u128 {
            leases.attach(&(n << 64).to_le_bytes(), &[0]).unwrap();
        }
        assert!(leases.attach(&[9; ID_BYTES], &[0]).is_err());
    }
}
