//! The boot configuration's frame: any bytes are refused or read, none are believed half.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|area: &[u8]| {
    let _config = airlock_lane::boot::decode(area);
});
