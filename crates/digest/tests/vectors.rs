//! Every implementation against vectors from NIST and from Python's `hashlib`.

use airlock_digest::{Digest, FileHasher, LeafHasher, RootHasher, leaf_count, root};
use airlock_model::size::LEAF_BYTES;

/// The implementations one by one, and the mix that this CPU would use.
fn all_hashers() -> Vec<LeafHasher> {
    let mut hashers = LeafHasher::all_supported();
    hashers.push(LeafHasher::fastest());
    hashers
}

fn whole(data: &[u8]) -> Digest {
    let mut hasher = FileHasher::new();
    data.chunks(1000).for_each(|piece| hasher.update(piece));
    hasher.finish()
}

/// Digests published with FIPS 180-4 and its example computations.
#[test]
fn nist_examples() {
    let million = "a".repeat(1_000_000);
    let table = [
        (
            "abc",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
        (
            "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        ),
        (
            "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1",
        ),
        (
            &million,
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
        ),
    ];
    for (message, expected) in table {
        assert_eq!(whole(message.as_bytes()).to_string(), expected);
        for hasher in all_hashers() {
            let mut leaves = Vec::new();
            hasher.hash_leaves(message.as_bytes(), &mut leaves);
            if message.len() <= LEAF_BYTES {
                assert_eq!(leaves[0].to_string(), expected, "{}", hasher.name());
            }
        }
    }
}

/// The boundary table of `vectors/generate.py`: block, padding and leaf edges, and the counts of
/// leaves that fill, underfill and overfill four and eight lanes.
#[test]
fn second_implementation() {
    for line in include_str!("vectors/leaves.txt").lines() {
        let columns: Vec<&str> = line.split(' ').collect();
        let [length, seed, file, count, expected_root] = columns[..] else {
            panic!("columns: {line}")
        };
        let (length, seed): (usize, usize) = (length.parse().unwrap(), seed.parse().unwrap());
        let data: Vec<u8> = (0..length)
            .map(|i| ((i * 31 + i / 251 + seed) % 256) as u8)
            .collect();

        assert_eq!(whole(&data).to_string(), file, "length {length}");
        assert_eq!(
            leaf_count(length as u64).to_string(),
            count,
            "length {length}"
        );
        for hasher in all_hashers() {
            let mut leaves = Vec::new();
            hasher.hash_leaves(&data, &mut leaves);
            assert_eq!(
                leaves.len().to_string(),
                count,
                "{} at {length}",
                hasher.name()
            );
            assert_eq!(
                root(&leaves).to_string(),
                expected_root,
                "{} at {length}",
                hasher.name()
            );

            let mut in_pieces = RootHasher::new();
            for leaf in &leaves {
                in_pieces.push(leaf);
            }
            assert_eq!(in_pieces.finish(), root(&leaves));
        }
    }
}
