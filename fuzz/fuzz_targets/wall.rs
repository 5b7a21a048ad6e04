//! Frames that a guest sends: whatever passes the wall has a destination that is another machine.
#![no_main]

use airlock_net::wall::{Verdict, judge};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|frame: &[u8]| {
    if judge(frame) == Verdict::Drop {
        return;
    }
    // A second reading of the same frame, by the offsets of RFC 791 and RFC 8200.
    let destination = match frame[12..14] {
        [0x08, 0x06] => return,
        [0x08, 0x00] => &frame[14 + 16..14 + 20],
        [0x86, 0xdd] => &frame[14 + 24..14 + 40],
        _ => panic!("an unknown protocol passed"),
    };
    if destination.len() == 4 {
        assert!(!matches!(destination[0], 0 | 127 | 224..), "{destination:?} passed");
    } else {
        let address: [u8; 16] = destination.try_into().unwrap();
        let address = std::net::Ipv6Addr::from(address);
        assert!(!address.is_loopback() && !address.is_unspecified(), "{address} passed");
        let mapped = address.to_ipv4();
        assert!(mapped.is_none(), "{address} passed, which stands for {mapped:?}");
    }
});
