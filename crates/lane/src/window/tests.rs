use airlock_model::size::SLOT_BYTES;
use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn announce(offset: u64, bytes: u64, digests: usize) -> Result<Part, PartError> {
    Part::announced(offset, bytes, &vec![0; digests * Digest::BYTES], SLOT_BYTES)
}

#[rstest]
#[case::one_byte(1, 1)]
#[case::leaf_less_one(LEAF_BYTES as u64 - 1, 1)]
#[case::leaf(LEAF_BYTES as u64, 1)]
#[case::leaf_and_one(LEAF_BYTES as u64 + 1, 2)]
#[case::slot(SLOT_BYTES as u64, SLOT_BYTES / LEAF_BYTES)]
fn as_many_digests_as_leaves(#[case] bytes: u64, #[case] leaves: usize) {
    assert_eq!(announce(0, bytes, leaves).unwrap().leaves().len(), leaves);
    assert!(announce(0, bytes, leaves - 1).is_err());
    assert!(announce(0, bytes, leaves + 1).is_err());
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    let slot = SLOT_BYTES as u64;
    assert!(matches!(announce(1, 1, 1), Err(PartError::Offset { .. })));
    assert!(matches!(announce(0, 0, 0), Err(PartError::Length { .. })));
    assert!(matches!(
        announce(0, slot + 1, 33),
        Err(PartError::Length { .. })
    ));
    assert!(matches!(
        announce(0, u64::MAX, 1),
        Err(PartError::Length { .. })
    ));
    let last = u64::MAX - u64::MAX % LEAF_BYTES as u64;
    assert!(matches!(
        announce(last, slot, 32),
        Err(PartError::End { .. })
    ));
    let past_i64 = 1 << 63;
    assert!(matches!(
        announce(past_i64, 1, 1),
        Err(PartError::End { .. })
    ));
}

#[test]
fn a_flipped_bit_is_found_in_its_leaf() {
    let mut data = vec![7; 3 * LEAF_BYTES + 5];
    let part = Part::of(0, &data);
    part.verify(&data).unwrap();
    data[LEAF_BYTES * 2 + 9] ^= 1;
    assert_eq!(part.verify(&data).unwrap_err().bad_leaves, [2]);
    let tail = &data[2 * LEAF_BYTES..];
    assert_eq!(part.verify_leaves(2, tail).unwrap_err().bad_leaves, [0]);
    part.verify_leaves(3, &data[3 * LEAF_BYTES..]).unwrap();
}

#[test]
fn a_copy_past_the_part_does_not_verify() {
    let part = Part::of(0, &[1; 10]);
    assert!(part.verify_leaves(1, &[1; 10]).is_err());
    assert!(part.verify_leaves(usize::MAX, &[1; 10]).is_err());
}

proptest! {
    #[test]
    fn announcements_never_panic(
        offset in any::<u64>(),
        bytes in any::<u64>(),
        digests in proptest::collection::vec(any::<u8>(), 0..2048),
    ) {
        if let Ok(part) = Part::announced(offset, bytes, &digests, SLOT_BYTES) {
            prop_assert!(part.end() <= MAX_FILE_BYTES);
            prop_assert!(part.bytes() <= SLOT_BYTES);
        }
    }

    #[test]
    fn likely_announcements_never_panic(
        leaf in 0_u64..1 << 47,
        bytes in 0_u64..(SLOT_BYTES as u64 * 2),
        digests in 0_usize..70,
    ) {
        let _ = announce(leaf * LEAF_BYTES as u64, bytes, digests);
    }

    #[test]
    fn what_is_announced_arrives(data in proptest::collection::vec(any::<u8>(), 1..1000)) {
        let part = Part::of(0, &data);
        let again = Part::announced(0, data.len() as u64, &part.leaf_bytes(), SLOT_BYTES);
        prop_assert_eq!(again, Ok(part));
    }
}
