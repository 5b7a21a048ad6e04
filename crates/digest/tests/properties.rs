//! Properties of leaf hashing, and the rules of digests, roots and mismatches.

use std::time::Duration;

use airlock_digest::{
    Digest, FileHasher, LeafHasher, Mismatch, ParseDigestError, copy_rate, leaf_count, root,
    sha256_rate, verify,
};
use airlock_model::size::LEAF_BYTES;
use proptest::prelude::*;

fn whole(data: &[u8]) -> Digest {
    let mut hasher = FileHasher::new();
    hasher.update(data);
    hasher.finish()
}

fn leaves_of(hasher: LeafHasher, leaf_bytes: usize, data: &[u8]) -> Vec<Digest> {
    let mut leaves = Vec::new();
    hasher.hash_leaves_of(leaf_bytes, data, &mut leaves);
    leaves
}

proptest! {
    /// Small leaves of odd sizes reach every mix of full, short and missing streams cheaply.
    #[test]
    fn every_implementation_agrees_with_sha2(
        leaf_bytes in 1..300_usize,
        data in prop::collection::vec(any::<u8>(), 0..6000),
    ) {
        let expected: Vec<_> = data.chunks(leaf_bytes).map(whole).collect();
        prop_assert_eq!(&leaves_of(LeafHasher::fastest(), leaf_bytes, &data), &expected);
        for hasher in LeafHasher::all_supported() {
            prop_assert_eq!(&leaves_of(hasher, leaf_bytes, &data), &expected, "{}", hasher.name());
        }
    }

    #[test]
    fn text_round_trips(bytes: [u8; 32]) {
        let digest = Digest::from_bytes(bytes);
        prop_assert_eq!(digest.to_string().parse(), Ok(digest));
        prop_assert_eq!(digest.as_bytes(), &bytes);
    }

    #[test]
    fn one_changed_bit_makes_another_digest(bytes: [u8; 32], bit in 0..256_usize) {
        let mut changed = bytes;
        changed[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!Digest::from_bytes(bytes).ct_eq(&changed.into()));
        prop_assert!(Digest::from_bytes(bytes).ct_eq(&bytes.into()));
    }
}

#[test]
fn digests_are_appended() {
    let mut out = vec![whole(b"before")];
    LeafHasher::fastest().hash_leaves(b"after", &mut out);
    assert_eq!(out, [whole(b"before"), whole(b"after")]);
}

#[test]
fn leaves_are_counted() {
    let leaf = LEAF_BYTES as u64;
    for (len, leaves) in [
        (0, 0),
        (1, 1),
        (leaf - 1, 1),
        (leaf, 1),
        (leaf + 1, 2),
        (8 * leaf, 8),
    ] {
        assert_eq!(leaf_count(len), leaves, "length {len}");
    }
    assert_eq!(leaf_count(u64::MAX), u64::MAX / leaf + 1);
}

#[test]
fn the_root_of_nothing_is_the_digest_of_nothing() {
    let expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(root(&[]).to_string(), expected);
}

#[test]
fn the_root_depends_on_the_order() {
    let (first, second) = (whole(b"first"), whole(b"second"));
    assert_ne!(root(&[first, second]), root(&[second, first]));
}

#[test]
fn every_bad_leaf_is_listed() {
    let expected: Vec<_> = (0..5_u8).map(|leaf| whole(&[leaf])).collect();
    assert_eq!(verify(&expected, &expected), Ok(()));

    let mut actual = expected.clone();
    actual.swap(1, 4);
    let mismatch = verify(&expected, &actual).unwrap_err();
    assert_eq!(mismatch.bad_leaves, [1, 4]);
    assert_eq!(
        mismatch.to_string(),
        "2 of 5 leaves have another SHA-256, the first is leaf 1"
    );
}

#[test]
fn leaves_on_one_side_alone_are_bad() {
    let leaves: Vec<_> = (0..3_u8).map(|leaf| whole(&[leaf])).collect();
    let missing = Mismatch {
        bad_leaves: vec![1, 2],
        expected_leaves: 3,
        actual_leaves: 1,
    };
    assert_eq!(missing.to_string(), "3 leaves were announced, 1 found");
    assert_eq!(verify(&leaves, &leaves[..1]), Err(missing));
    assert_eq!(verify(&leaves[..2], &leaves).unwrap_err().bad_leaves, [2]);
}

#[test]
fn text_that_is_no_digest_is_refused() {
    let digits = "0".repeat(64);
    assert_eq!(
        digits[1..].parse::<Digest>(),
        Err(ParseDigestError::Length { got: 63 })
    );
    assert_eq!(
        "".parse::<Digest>(),
        Err(ParseDigestError::Length { got: 0 })
    );
    for (offset, wrong) in [(0, "A"), (63, "g"), (7, " ")] {
        let mut text = digits.clone();
        text.replace_range(offset..=offset, wrong);
        assert_eq!(
            text.parse::<Digest>(),
            Err(ParseDigestError::Digit { offset })
        );
    }
    assert_eq!(
        Digest::try_from(&[0; 31][..]),
        Err(ParseDigestError::Bytes { got: 31 })
    );
}

#[test]
fn rates_are_positive() {
    assert!(sha256_rate(Duration::from_millis(1)) > 0.0);
    assert!(copy_rate(Duration::from_millis(1)) > 0.0);
}
