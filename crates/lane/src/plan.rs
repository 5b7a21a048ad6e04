//! How a file is cut into windows.

use airlock_model::size::{MAX_SLOTS_PER_TRANSFER, MIB, SLOT_BYTES};

/// A small window: work for two vCPUs with eight leaves each, what the widest hash takes side by
/// side.
pub const SMALL_WINDOW_BYTES: usize = MIB as usize;

/// The longest window to make of the next bytes of a file of `size` bytes with `slots` slots.
///
/// A file whose small windows all fit into the slots at once is cut into those, so that both ends
/// work on different windows from the first millisecond on and no slot is used twice. A larger
/// one, or one of unknown size, takes whole slots: fewer messages and larger I/O requests.
#[must_use]
pub fn window_bytes(size: Option<u64>, slots: usize) -> usize {
    let slots = slots.min(MAX_SLOTS_PER_TRANSFER) as u64;
    match size {
        Some(size) if size <= slots * SMALL_WINDOW_BYTES as u64 => SMALL_WINDOW_BYTES,
        _ => SLOT_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_get_small_windows() {
        assert_eq!(window_bytes(Some(4 * MIB), 8), SMALL_WINDOW_BYTES);
        assert_eq!(window_bytes(Some(8 * MIB), 8), SMALL_WINDOW_BYTES);
        assert_eq!(window_bytes(Some(8 * MIB + 1), 8), SLOT_BYTES);
        assert_eq!(window_bytes(Some(4 * MIB), 1), SLOT_BYTES);
        assert_eq!(window_bytes(None, 8), SLOT_BYTES);
    }
}
