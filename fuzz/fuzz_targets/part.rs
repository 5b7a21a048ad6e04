//! Windows and data that a Space announces: accepted only if they lie inside what they may.
#![no_main]

use airlock_lane::{Coverage, Part};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, Vec<(u64, u32, Vec<u8>)>)| {
    let (start, announced) = input;
    let mut coverage = Coverage::new(start);
    for (offset, bytes, leaves) in announced {
        let Ok(part) = Part::announced(offset, u64::from(bytes), &leaves, airlock_model::size::SLOT_BYTES) else { continue };
        assert!(part.bytes() <= airlock_model::size::SLOT_BYTES);
        assert!(part.end() >= part.offset());
        if coverage.begin(&part).is_ok() {
            coverage.complete(&part);
        }
        let _digest = coverage.root();
    }
});
