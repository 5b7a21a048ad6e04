//! Where a stretch of a slot lies, with every bound checked.

use std::io;

use airlock_model::LaneGeometry;

/// Why a slot could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    /// The lane has no such slot.
    #[error("the lane has {slots} slots, no slot {slot}")]
    NoSuchSlot {
        /// Slot asked for.
        slot: u32,
        /// Slots of the lane.
        slots: u32,
    },
    /// The stretch does not lie in the slot.
    #[error("{length} bytes from offset {offset} do not fit into a slot of {slot_bytes} bytes")]
    OutOfSlot {
        /// Offset in the slot.
        offset: u64,
        /// Bytes.
        length: usize,
        /// Bytes in a slot.
        slot_bytes: u64,
    },
    /// The memory or the device failed.
    #[error("slot {slot} of the lane could not be used")]
    Io {
        /// The slot.
        slot: u32,
        /// What the system said.
        source: io::Error,
    },
}

/// Byte offset in the lane of `length` bytes from `offset` of `slot`.
pub(crate) fn locate(
    geometry: LaneGeometry,
    slot: u32,
    offset: u64,
    length: usize,
) -> Result<u64, SlotError> {
    let start = geometry.slot_offset(slot).ok_or(SlotError::NoSuchSlot {
        slot,
        slots: geometry.slots,
    })?;
    let fits = u64::try_from(length)
        .ok()
        .and_then(|length| offset.checked_add(length))
        .is_some_and(|end| end <= geometry.slot_bytes);
    if !fits {
        return Err(SlotError::OutOfSlot {
            offset,
            length,
            slot_bytes: geometry.slot_bytes,
        });
    }
    Ok(start + offset)
}
