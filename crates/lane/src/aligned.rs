//! Buffers that direct I/O accepts.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};

use airlock_model::size::{DIRECT_IO_ALIGN, MIB, align_up};
use memmap2::MmapMut;

/// Size of a huge page on the machines that Spaces are.
const HUGE_PAGE_BYTES: usize = 2 * MIB as usize;

/// A buffer of fixed length whose first byte lies at a multiple of [`DIRECT_IO_ALIGN`].
///
/// A large one starts at a huge page, so that the kernel can back it with those: fewer faults,
/// and a disk request of few pieces instead of a thousand.
///
/// Its pages are touched when it is made. Keep it for the life of the thread that uses it: in an
/// emulated VM the first touch of a page costs 19 µs, more than hashing it.
///
/// It is memory straight from the kernel, so that dropping it gives the memory back: the C
/// library keeps freed blocks of this size (56 MiB in an idle guestd, seen).
#[derive(Debug)]
pub struct AlignedBuf {
    storage: MmapMut,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// A zeroed buffer of `len` bytes, rounded up to the alignment.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let len = align_up(len);
        let align = if len >= HUGE_PAGE_BYTES {
            HUGE_PAGE_BYTES
        } else {
            DIRECT_IO_ALIGN
        };
        let whole = len + align;
        // Out of memory ends the program, as it does for a vector.
        let storage = MmapMut::map_anon(whole).unwrap_or_else(|_| {
            handle_alloc_error(Layout::array::<u8>(whole).unwrap_or(Layout::new::<u8>()))
        });
        let address = storage.as_ptr().addr();
        let start = address.next_multiple_of(align) - address;
        let mut buf = Self {
            storage,
            start,
            len,
        };
        // The kernel gives pages that do not exist yet; a write makes each of them real.
        for page in buf.chunks_mut(DIRECT_IO_ALIGN) {
            page[0] = std::hint::black_box(0);
        }
        buf
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_a_page_and_has_whole_pages() {
        for len in [0, 1, 4095, 4096, 4097, 1 << 20, 4 << 20] {
            let buf = AlignedBuf::new(len);
            assert_eq!(buf.as_ptr().addr() % DIRECT_IO_ALIGN, 0);
            assert_eq!(buf.len(), align_up(len));
        }
    }
}
