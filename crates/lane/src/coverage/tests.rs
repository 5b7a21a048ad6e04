use airlock_digest::root;
use proptest::prelude::*;

use super::*;

const LEAF: u64 = LEAF_BYTES as u64;

/// A part of `leaves` leaves, the last one `short` bytes shorter, with made-up digests.
fn part(first_leaf: u64, leaves: u64, short: u64) -> Part {
    let digests: Vec<_> = (first_leaf..first_leaf + leaves).map(digest).collect();
    Part::hashed(
        first_leaf * LEAF,
        usize::try_from(leaves * LEAF - short).unwrap(),
        digests,
    )
}

fn digest(leaf: u64) -> Digest {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&leaf.to_le_bytes());
    Digest::from_bytes(bytes)
}

#[test]
fn an_empty_file_is_complete_at_once() {
    let mut coverage = Coverage::new(0);
    coverage.set_end(0).unwrap();
    assert!(coverage.is_complete(0));
    assert_eq!(coverage.root(), root(&[]));
}

#[test]
fn the_root_is_in_file_order_whatever_the_order_of_arrival() {
    let mut coverage = Coverage::new(0);
    let parts = [part(0, 2, 0), part(2, 1, 0), part(3, 2, 7)];
    for index in [2, 0, 1] {
        coverage.begin(&parts[index]).unwrap();
        assert!(!coverage.is_complete(5 * LEAF - 7));
    }
    for index in [1, 2, 0] {
        coverage.complete(&parts[index]);
    }
    assert!(coverage.is_complete(5 * LEAF - 7));
    let all: Vec<_> = (0..5).map(digest).collect();
    assert_eq!(coverage.root(), root(&all));
}

#[test]
fn a_part_that_came_before_is_refused() {
    let mut coverage = Coverage::new(0);
    coverage.begin(&part(2, 2, 0)).unwrap();
    for (first, leaves) in [(2, 2), (2, 1), (3, 1), (1, 2), (0, 8)] {
        let overlap = coverage.begin(&part(first, leaves, 0));
        assert!(
            matches!(overlap, Err(CoverageError::Overlap { .. })),
            "{first} {leaves}"
        );
    }
    coverage.begin(&part(0, 2, 0)).unwrap();
    coverage.complete(&part(0, 2, 0));
    let again = coverage.begin(&part(0, 1, 0));
    assert!(matches!(again, Err(CoverageError::Overlap { .. })));
}

#[test]
fn a_part_that_failed_can_come_again() {
    let mut coverage = Coverage::new(0);
    let short = part(0, 1, 5);
    coverage.begin(&short).unwrap();
    coverage.abandon(&short);
    coverage.begin(&part(0, 2, 0)).unwrap();
    coverage.complete(&part(0, 2, 0));
    assert!(coverage.is_complete(2 * LEAF));
}

#[test]
fn nothing_lies_past_the_end() {
    let mut coverage = Coverage::new(0);
    coverage.begin(&part(1, 1, 1)).unwrap();
    assert!(matches!(
        coverage.begin(&part(2, 1, 0)),
        Err(CoverageError::PastEnd { .. })
    ));
    assert!(coverage.set_end(2 * LEAF).is_err());
    coverage.set_end(2 * LEAF - 1).unwrap();

    let mut coverage = Coverage::new(0);
    coverage.begin(&part(4, 1, 0)).unwrap();
    assert!(coverage.begin(&part(1, 1, 1)).is_err());
    assert!(coverage.set_end(LEAF).is_err());
}

#[test]
fn a_large_hole_is_refused() {
    let mut coverage = Coverage::new(0);
    let far = MAX_AHEAD_BYTES / LEAF;
    assert!(matches!(
        coverage.begin(&part(far, 1, 0)),
        Err(CoverageError::TooFarAhead { .. })
    ));
    coverage.begin(&part(far - 1, 1, 0)).unwrap();
}

#[test]
fn a_range_starts_where_it_starts() {
    let mut coverage = Coverage::new(8 * LEAF);
    assert!(coverage.begin(&part(7, 1, 0)).is_err());
    coverage.begin(&part(8, 1, 0)).unwrap();
    coverage.complete(&part(8, 1, 0));
    assert_eq!(coverage.covered_bytes(), LEAF);
    assert_eq!(coverage.root(), root(&[digest(8)]));
}

proptest! {
    /// Whatever comes, the account never claims bytes that were not completed.
    #[test]
    fn never_covers_what_did_not_arrive(
        steps in proptest::collection::vec((0_u64..12, 1_u64..4, 0_u64..2, any::<bool>()), 1..40),
    ) {
        let mut coverage = Coverage::new(0);
        let mut arrived = std::collections::BTreeSet::new();
        for (first, leaves, short, good) in steps {
            let part = part(first, leaves, short);
            if coverage.begin(&part).is_ok() {
                if good {
                    coverage.complete(&part);
                    for leaf in first..first + leaves {
                        prop_assert!(arrived.insert(leaf), "leaf {} counted twice", leaf);
                    }
                } else {
                    coverage.abandon(&part);
                }
            }
            let whole = (0..20).take_while(|leaf| arrived.contains(leaf)).count() as u64;
            prop_assert_eq!(coverage.frontier().div_ceil(LEAF), whole);
        }
    }
}
