//! SHA-256 of one stream in plain integer code, and the constants that every kernel shares.

use std::array;

/// One message block (5.2.1).
pub(crate) type Block = [u8; 64];
/// The eight words of a hash value.
pub(crate) type State = [u32; 8];

/// The initial hash value (5.3.3).
pub(crate) const INITIAL: State = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// The constants of the 64 rounds (4.2.2).
pub(crate) static K: [u32; 64] = [
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
    0x2431_85be,
    0x550c_7dc3,
    0x72be_5d74,
    0x80de_b1fe,
    0x9bdc_06a7,
    0xc19b_f174,
    0xe49b_69c1,
    0xefbe_4786,
    0x0fc1_9dc6,
    0x240c_a1cc,
    0x2de9_2c6f,
    0x4a74_84aa,
    0x5cb0_a9dc,
    0x76f9_88da,
    0x983e_5152,
    0xa831_c66d,
    0xb003_27c8,
    0xbf59_7fc7,
    0xc6e0_0bf3,
    0xd5a7_9147,
    0x06ca_6351,
    0x1429_2967,
    0x27b7_0a85,
    0x2e1b_2138,
    0x4d2c_6dfc,
    0x5338_0d13,
    0x650a_7354,
    0x766a_0abb,
    0x81c2_c92e,
    0x9272_2c85,
    0xa2bf_e8a1,
    0xa81a_664b,
    0xc24b_8b70,
    0xc76c_51a3,
    0xd192_e819,
    0xd699_0624,
    0xf40e_3585,
    0x106a_a070,
    0x19a4_c116,
    0x1e37_6c08,
    0x2748_774c,
    0x34b0_bcb5,
    0x391c_0cb3,
    0x4ed8_aa4a,
    0x5b9c_ca4f,
    0x682e_6ff3,
    0x748f_82ee,
    0x78a5_636f,
    0x84c8_7814,
    0x8cc7_0208,
    0x90be_fffa,
    0xa450_6ceb,
    0xbef9_a3f7,
    0xc671_78f2,
];

/// The padding of a message of `len` bytes whose last, incomplete block is `tail` (5.1.1).
///
/// Returns two blocks and how many of them count.
pub(crate) fn padding(tail: &[u8], len: usize) -> ([Block; 2], usize) {
    let mut blocks = [[0; 64]; 2];
    let used = if tail.len() < 56 { 1 } else { 2 };
    blocks[0][..tail.len()].copy_from_slice(tail);
    blocks[0][tail.len()] = 0x80;
    blocks[used - 1][56..].copy_from_slice(&(8 * len as u64).to_be_bytes());
    (blocks, used)
}

/// Hashes `blocks` into `state` (6.2.2).
///
/// Inlined into every caller, so that one with more target features compiles its own copy.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "the target features of the caller must apply"
)]
pub(crate) fn compress(state: &mut State, blocks: &[Block]) {
    for block in blocks {
        let words = block.as_chunks::<4>().0;
        let mut w: [u32; 16] = array::from_fn(|index| u32::from_be_bytes(words[index]));
        let mut s = *state;
        for t in 0..16 {
            round(&mut s, t, w[t], K[t]);
        }
        for base in (16..64).step_by(16) {
            for t in 0..16 {
                w[t] = w[t]
                    .wrapping_add(small_sigma0(w[(t + 1) & 15]))
                    .wrapping_add(w[(t + 9) & 15])
                    .wrapping_add(small_sigma1(w[(t + 14) & 15]));
                round(&mut s, t, w[t], K[base + t]);
            }
        }
        for (word, add) in state.iter_mut().zip(s) {
            *word = word.wrapping_add(add);
        }
    }
}

/// One round: instead of moving eight words, their roles rotate with the index.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "the roles are constants only where `index` is one"
)]
fn round(state: &mut State, index: usize, word: u32, constant: u32) {
    let at = |role: usize| (role + 64 - index) & 7;
    let (a, e) = (state[at(0)], state[at(4)]);
    let big_sigma1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
    let choice = state[at(6)] ^ (e & (state[at(5)] ^ state[at(6)]));
    let t1 = (state[at(7)].wrapping_add(constant.wrapping_add(word)))
        .wrapping_add(big_sigma1.wrapping_add(choice));
    let big_sigma0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
    let majority = (a & state[at(1)]) ^ (state[at(2)] & (a ^ state[at(1)]));
    state[at(3)] = state[at(3)].wrapping_add(t1);
    state[at(7)] = t1.wrapping_add(big_sigma0).wrapping_add(majority);
}

fn small_sigma0(x: u32) -> u32 {
    x.rotate_right(7) ^ x.rotate_right(18) ^ (x >> 3)
}

fn small_sigma1(x: u32) -> u32 {
    x.rotate_right(17) ^ x.rotate_right(19) ^ (x >> 10)
}
