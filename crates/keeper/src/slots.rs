//! Who holds which slot of the lane.
//!
//! A pure table: it decides, the keeper acts. A slot is free, leased, or draining: its lease is
//! over, but guestd has not yet said that no transfer touches it. Only then is it free again, so
//! bytes of one transfer never land in another's window.

use std::collections::BTreeMap;

use airlock_model::size::MAX_SLOTS_PER_TRANSFER;

/// Names one lease.
pub type LeaseId = [u8; 16];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Free,
    Leased,
    Draining,
}

/// The state of every slot.
#[derive(Debug)]
pub struct SlotTable {
    slots: Vec<Slot>,
    leases: BTreeMap<LeaseId, Vec<u32>>,
}

impl SlotTable {
    /// A table of `count` free slots.
    pub fn new(count: u32) -> Self {
        Self {
            slots: vec![Slot::Free; count as usize],
            leases: BTreeMap::new(),
        }
    }

    /// How many slots the next client gets: a quarter of what is free, so that many clients who
    /// come one after the other all find some, but at least one and at most what one transfer
    /// can use. Zero when none is free.
    pub fn share(&self) -> usize {
        let free = self
            .slots
            .iter()
            .filter(|slot| **slot == Slot::Free)
            .count();
        (free / 4).clamp(1, MAX_SLOTS_PER_TRANSFER).min(free)
    }

    /// Leases the client's share of slots to `id`, or nothing when none is free.
    pub fn lease(&mut self, id: LeaseId) -> Option<Vec<u32>> {
        let share = self.share();
        if share == 0 || self.leases.contains_key(&id) {
            return None;
        }
        let taken: Vec<u32> = (0..self.slots.len())
            .filter(|&index| self.slots[index] == Slot::Free)
            .take(share)
            .map(|index| index as u32)
            .collect();
        for &slot in &taken {
            self.slots[slot as usize] = Slot::Leased;
        }
        self.leases.insert(id, taken.clone());
        Some(taken)
    }

    /// The client of `id` is gone: its slots drain.
    pub fn end(&mut self, id: &LeaseId) {
        for &slot in self.leases.get(id).into_iter().flatten() {
            self.slots[slot as usize] = Slot::Draining;
        }
    }

    /// Nothing in the Space touches the slots of `id` any more: they are free. Returns them.
    pub fn drained(&mut self, id: &LeaseId) -> Vec<u32> {
        let slots = self.leases.remove(id).unwrap_or_default();
        for &slot in &slots {
            self.slots[slot as usize] = Slot::Free;
        }
        slots
    }

    /// The slots that nobody uses.
    pub fn free(&self) -> Vec<u32> {
        let free = |(index, slot): (usize, &Slot)| (*slot == Slot::Free).then_some(index as u32);
        self.slots.iter().enumerate().filter_map(free).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> LeaseId {
        [n; 16]
    }

    #[test]
    fn a_lone_client_gets_what_one_transfer_can_use() {
        let mut table = SlotTable::new(64);
        assert_eq!(table.lease(id(1)).unwrap(), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn many_clients_all_get_some_and_never_the_same() {
        let mut table = SlotTable::new(64);
        let mut seen = std::collections::BTreeSet::new();
        let mut clients = 0;
        while let Some(slots) = table.lease(id(clients)) {
            assert!(!slots.is_empty());
            assert!(
                slots.iter().all(|slot| seen.insert(*slot)),
                "a slot was leased twice"
            );
            clients += 1;
        }
        assert_eq!(seen.len(), 64);
        assert!(clients >= 16, "only {clients} clients found slots");
    }

    #[test]
    fn a_slot_is_leased_again_only_after_it_drained() {
        let mut table = SlotTable::new(1);
        assert_eq!(table.lease(id(1)), Some(vec![0]));
        table.end(&id(1));
        assert_eq!(table.lease(id(2)), None);
        assert!(table.free().is_empty());
        assert_eq!(table.drained(&id(1)), vec![0]);
        assert_eq!(table.lease(id(2)), Some(vec![0]));
    }

    #[test]
    fn unknown_leases_change_nothing() {
        let mut table = SlotTable::new(2);
        table.end(&id(9));
        assert!(table.drained(&id(9)).is_empty());
        assert_eq!(table.free(), vec![0, 1]);
    }
}
