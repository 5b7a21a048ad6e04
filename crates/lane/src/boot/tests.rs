use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use airlock_model::{LaneGeometry, NetConfig, SpaceName};
use proptest::prelude::*;

use super::*;

fn config() -> BootConfig {
    BootConfig {
        hostname: SpaceName::new("box").unwrap(),
        token: "secret".into(),
        machine_id: "0".repeat(32),
        now_unix_ns: 1,
        entropy: "f".repeat(64),
        host_build: "b1".into(),
        control: Some(NetConfig {
            mac: "52:54:00:00:00:01".into(),
            addresses: vec!["10.0.2.15/24".into()],
            gateways: vec![],
            dns: vec![],
            mtu: 1500,
        }),
        network: None,
    }
}

fn lane() -> (LaneMemory, LaneDevice) {
    let memory = LaneMemory::create(LaneGeometry::STANDARD).unwrap();
    let file = File::from(memory.as_fd().try_clone_to_owned().unwrap());
    (memory, LaneDevice::adopt(file, Path::new("memfd")).unwrap())
}

#[test]
fn it_arrives_once_and_leaves_no_trace() {
    let (memory, device) = lane();
    write_boot_config(&memory, &config()).unwrap();
    assert!(has_boot_config(&memory).unwrap());
    assert_eq!(read_boot_config(&device).unwrap(), config());
    assert!(!has_boot_config(&memory).unwrap());
    let mut area = vec![1; BOOT_AREA_BYTES];
    memory.read_head(&mut area).unwrap();
    assert!(area.iter().all(|byte| *byte == 0));
    assert!(matches!(
        read_boot_config(&device),
        Err(BootConfigError::Absent)
    ));
}

#[test]
fn it_is_wiped_even_when_it_makes_no_sense() {
    let (memory, device) = lane();
    let mut bytes = encode(&config()).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    memory.write_head(&bytes).unwrap();
    assert!(matches!(
        read_boot_config(&device),
        Err(BootConfigError::Digest { .. })
    ));
    assert!(!has_boot_config(&memory).unwrap());
}

#[test]
fn lengths_past_the_end_are_refused() {
    let mut bytes = encode(&config()).unwrap();
    bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(
        decode(&bytes),
        Err(BootConfigError::Length { .. })
    ));
    let mut large = config();
    large.token = "x".repeat(BOOT_AREA_BYTES);
    assert!(matches!(
        encode(&large),
        Err(BootConfigError::Length { .. })
    ));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _ = decode(&bytes);
    }

    #[test]
    fn arbitrary_bytes_behind_the_magic_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..512),
        length in 0_u32..600,
    ) {
        let mut area = MAGIC.to_vec();
        area.extend_from_slice(&length.to_le_bytes());
        area.extend_from_slice(&bytes);
        let _ = decode(&area);
    }

    #[test]
    fn json_with_a_true_digest_never_panics(text in ".{0,200}") {
        let mut area = MAGIC.to_vec();
        area.extend_from_slice(&u32::try_from(text.len()).unwrap().to_le_bytes());
        area.extend_from_slice(sha256(text.as_bytes()).as_ref());
        area.extend_from_slice(text.as_bytes());
        prop_assert!(decode(&area).is_err());
    }
}
