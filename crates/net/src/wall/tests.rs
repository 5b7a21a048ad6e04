use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn frame(destination: IpAddr) -> Vec<u8> {
    let mut frame = vec![0x52; 12];
    match destination {
        IpAddr::V4(address) => {
            frame.extend([0x08, 0x00, 0x45]);
            frame.resize(14 + 16, 0);
            frame.extend(address.octets());
        }
        IpAddr::V6(address) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
            frame.resize(14 + 24, 0);
            frame.extend(address.octets());
        }
    }
    frame.extend([0; 20]);
    frame
}

fn judge_address(text: &str) -> Verdict {
    judge(&frame(text.parse().unwrap()))
}

#[test]
fn nothing_that_means_this_host_goes_out() {
    for address in [
        "127.0.0.1",
        "127.0.0.53",
        "127.255.255.255",
        "0.0.0.0",
        "0.1.2.3",
        "255.255.255.255",
        "224.0.0.251",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:0.0.0.0",
        "::ffff:192.0.2.2",
        "::ffff:0:127.0.0.1",
        "ff02::1",
        "ff01::1",
    ] {
        assert_eq!(judge_address(address), Verdict::Drop, "{address}");
    }
}

#[test]
fn the_world_and_the_lan_are_reached() {
    for address in [
        "1.1.1.1",
        "10.0.0.1",
        "126.255.255.255",
        "128.0.0.1",
        "192.0.2.1",
        "223.255.255.255",
    ] {
        assert_eq!(judge_address(address), Verdict::Pass, "{address}");
    }
    for address in ["2606:4700::1111", "fd00::1", "fe80::1"] {
        assert_eq!(judge_address(address), Verdict::Pass, "{address}");
    }
}

#[test]
fn neighbour_discovery_alone_may_be_multicast() {
    let mut solicitation = frame("ff02::1:ff00:1".parse().unwrap());
    solicitation[14 + 6] = 58;
    for kind in 0..=255 {
        solicitation[14 + 40] = kind;
        let expected = if (133..=136).contains(&kind) {
            Verdict::Pass
        } else {
            Verdict::Drop
        };
        assert_eq!(judge(&solicitation), expected, "type {kind}");
    }
    solicitation.truncate(14 + 40);
    assert_eq!(judge(&solicitation), Verdict::Drop);
}

#[test]
fn short_strange_and_tagged_frames_are_dropped() {
    let good = frame("1.1.1.1".parse().unwrap());
    for length in 0..34 {
        assert_eq!(judge(&good[..length]), Verdict::Drop, "{length} bytes");
    }
    assert_eq!(judge(&good[..34]), Verdict::Pass);
    let mut version = good.clone();
    version[14] = 0x65;
    assert_eq!(judge(&version), Verdict::Drop);
    let mut vlan = good[..12].to_vec();
    vlan.extend([0x81, 0x00, 0x00, 0x01]);
    vlan.extend(&good[12..]);
    assert_eq!(judge(&vlan), Verdict::Drop);
}

fn framed(frame: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(frame.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(frame);
    bytes
}

#[test]
fn an_impossible_length_is_an_error() {
    let mut buffer = u32::try_from(MAX_FRAME_BYTES + 1).unwrap().to_be_bytes();
    assert!(matches!(
        sift(&mut buffer),
        Err(WallError::FrameTooLong { .. })
    ));
    let mut buffer = u32::try_from(MAX_FRAME_BYTES).unwrap().to_be_bytes();
    assert_eq!(
        sift(&mut buffer).unwrap(),
        Sifted {
            passed_bytes: 0,
            consumed_bytes: 0
        }
    );
    // The largest frame must fit, or the wall would wait for its end for ever.
    const { assert!(BUFFER_BYTES >= LENGTH_BYTES + MAX_FRAME_BYTES) };
}

proptest! {
    /// Whatever the frames and wherever the reads cut, exactly the good frames come out, in order.
    #[test]
    fn cuts_do_not_matter(
        kinds in prop::collection::vec((any::<bool>(), 0usize..100), 0..20),
        cuts in prop::collection::vec(1usize..60, 1..50),
    ) {
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for (good, extra) in kinds {
            let address = if good { Ipv4Addr::new(1, 1, 1, 1) } else { Ipv4Addr::LOCALHOST };
            let mut bytes = frame(address.into());
            bytes.resize(bytes.len() + extra, 7);
            stream.extend(framed(&bytes));
            if good {
                expected.extend(framed(&bytes));
            }
        }
        let mut out: Vec<u8> = Vec::new();
        let mut held: Vec<u8> = Vec::new();
        let mut cuts = cuts.into_iter().cycle();
        while !stream.is_empty() {
            let cut = cuts.next().unwrap().min(stream.len());
            held.extend(stream.drain(..cut));
            let sifted = sift(&mut held).unwrap();
            out.extend(&held[..sifted.passed_bytes]);
            held.drain(..sifted.consumed_bytes);
        }
        prop_assert!(held.is_empty());
        prop_assert_eq!(out, expected);
    }

    /// No bytes make it panic, and what passes never names this host.
    #[test]
    fn any_bytes_are_judged(mut bytes in prop::collection::vec(any::<u8>(), 0..200), ip in 0..3) {
        if bytes.len() > 14 {
            match ip {
                0 => bytes[12..14].copy_from_slice(&[0x08, 0]),
                1 => bytes[12..14].copy_from_slice(&[0x86, 0xdd]),
                _ => {}
            }
        }
        if judge(&bytes) == Verdict::Pass {
            match bytes[12..14] {
                [0x08, 0] => {
                    let octets: [u8; 4] = bytes[30..34].try_into().unwrap();
                    let address = Ipv4Addr::from(octets);
                    prop_assert!(!address.is_loopback() && !address.is_unspecified());
                }
                [0x86, 0xdd] => {
                    let octets: [u8; 16] = bytes[38..54].try_into().unwrap();
                    let address = Ipv6Addr::from(octets);
                    prop_assert!(!address.is_loopback() && !address.is_unspecified());
                    prop_assert!(address.to_ipv4().is_none());
                }
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn guard_moves_both_ways_and_ends_with_either_side() {
    let (mut qemu, wall_qemu) = UnixStream::pair().unwrap();
    let (mut passt, wall_passt) = UnixStream::pair().unwrap();
    let wall = tokio::spawn(guard(wall_qemu, wall_passt));
    let good = framed(&frame("1.1.1.1".parse().unwrap()));
    qemu.write_all(&framed(&frame("127.0.0.1".parse().unwrap())))
        .await
        .unwrap();
    qemu.write_all(&good).await.unwrap();
    let mut out = vec![0; good.len()];
    passt.read_exact(&mut out).await.unwrap();
    assert_eq!(out, good);
    passt.write_all(b"whatever").await.unwrap();
    let mut back = [0; 8];
    qemu.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"whatever");
    drop(passt);
    wall.await.unwrap().unwrap();
    assert_eq!(qemu.read(&mut back).await.unwrap(), 0);
}
