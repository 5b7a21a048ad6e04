//! Where each slot lies in the lane.

use serde::{Deserialize, Serialize};

use crate::size::{LANE_RESERVED_BYTES, SLOT_BYTES, SLOTS};

/// The layout of a lane: `reserved | slot 0 | slot 1 | … | reserved`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneGeometry {
    /// Number of slots.
    pub slots: u32,
    /// Bytes in each slot.
    pub slot_bytes: u64,
    /// Byte offset of slot 0.
    pub data_offset: u64,
}

impl LaneGeometry {
    /// The layout that every lane of this version has.
    pub const STANDARD: Self = Self {
        slots: SLOTS,
        slot_bytes: SLOT_BYTES as u64,
        data_offset: LANE_RESERVED_BYTES,
    };

    /// Length of the whole lane in bytes.
    #[must_use]
    pub const fn total_bytes(&self) -> u64 {
        self.data_offset + self.slots as u64 * self.slot_bytes + LANE_RESERVED_BYTES
    }

    /// Byte offset of `slot` in the lane, or `None` when there is no such slot.
    #[must_use]
    pub const fn slot_offset(&self, slot: u32) -> Option<u64> {
        if slot < self.slots {
            Some(self.data_offset + slot as u64 * self.slot_bytes)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_fill_the_space_between_the_reserved_ends() {
        let geometry = LaneGeometry::STANDARD;
        assert_eq!(geometry.slot_offset(0), Some(LANE_RESERVED_BYTES));
        let last = geometry.slot_offset(geometry.slots - 1).unwrap();
        assert_eq!(
            last + geometry.slot_bytes + LANE_RESERVED_BYTES,
            geometry.total_bytes()
        );
    }

    #[test]
    fn a_slot_past_the_end_has_no_offset() {
        let geometry = LaneGeometry::STANDARD;
        assert_eq!(geometry.slot_offset(geometry.slots), None);
        assert_eq!(geometry.slot_offset(u32::MAX), None);
    }
}
