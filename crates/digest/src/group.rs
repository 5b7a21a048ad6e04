//! Hashing a group of leaves side by side: what every multi-lane kernel shares.

use std::array;

use sha2::block_api::compress256;

use crate::digest::Digest;
use crate::sha256::{self, Block, INITIAL, State};

/// Hashes one message in each lane and appends the digests in order.
///
/// `leaves` holds 1 to `N` messages. All have the same length, but the last may be shorter: a
/// file cut into leaves gives nothing else. `compress` gets slices of one length in all lanes;
/// lanes without a message of their own repeat the first and their result is dropped.
pub(crate) fn hash<const N: usize>(
    compress: impl Fn(&mut [State; N], [&[Block]; N]),
    leaves: &[&[u8]],
    out: &mut Vec<Digest>,
) {
    let [first, .., last] = leaves else {
        let first = leaves[0];
        return hash_equal(compress, [INITIAL; N], &[first], 0, out);
    };
    let mut states = [INITIAL; N];
    if last.len() == first.len() {
        return hash_equal(compress, states, leaves, 0, out);
    }

    // All lanes run to the end of the short one, which then ends alone while the others go on.
    let common = last.len() / 64;
    let lanes = lanes::<N>(leaves).map(|blocks| &blocks[..common]);
    compress(&mut states, lanes);
    let (longer, short) = (leaves.len() - 1, last);
    let mut short_state = states[longer];
    let (blocks, used) = sha256::padding(&short[64 * common..], short.len());
    compress256(&mut short_state, &blocks[..used]);
    hash_equal(compress, states, &leaves[..longer], common, out);
    out.push(Digest::from_words(&short_state));
}

/// The same for messages of one length whose first `done` blocks are hashed into `states`.
fn hash_equal<const N: usize>(
    compress: impl Fn(&mut [State; N], [&[Block]; N]),
    mut states: [State; N],
    leaves: &[&[u8]],
    done: usize,
    out: &mut Vec<Digest>,
) {
    compress(
        &mut states,
        lanes::<N>(leaves).map(|blocks| &blocks[done..]),
    );
    let ends: [_; N] = array::from_fn(|lane| {
        let leaf = leaves.get(lane).unwrap_or(&leaves[0]);
        sha256::padding(leaf.as_chunks::<64>().1, leaf.len())
    });
    compress(
        &mut states,
        array::from_fn(|lane| &ends[lane].0[..ends[lane].1]),
    );
    out.extend(states[..leaves.len()].iter().map(Digest::from_words));
}

/// The whole blocks of each message, those of the first in the idle lanes.
fn lanes<'a, const N: usize>(leaves: &[&'a [u8]]) -> [&'a [Block]; N] {
    let blocks_of_first = leaves[0].as_chunks().0;
    array::from_fn(|lane| {
        leaves
            .get(lane)
            .map_or(blocks_of_first, |leaf| leaf.as_chunks().0)
    })
}
