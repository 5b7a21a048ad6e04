//! Sixteen streams at once, one in each 32-bit lane of a 512-bit vector (6.2.2 with vectors for
//! words).
//!
//! Rotations and three-way logic are single instructions here, which makes this twice as fast per
//! byte as the SHA instructions where a CPU has both, as long as there are sixteen leaves to hash.
//! A block of each stream is one vector; sixteen of them are turned so that each vector has one
//! word of all streams.

#![expect(
    clippy::many_single_char_names,
    reason = "the working variables have the names of 6.2.2"
)]

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_ror_epi32, _mm512_set_epi8, _mm512_set1_epi32,
    _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_shuffle_i32x4, _mm512_srli_epi32,
    _mm512_ternarylogic_epi32, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32,
    _mm512_unpacklo_epi64,
};
use std::mem::transmute;

use crate::sha256::{Block, K, State};

/// Streams hashed side by side.
const STREAMS: usize = 16;

/// x ^ y ^ z as a truth table of `vpternlogd`.
const XOR: i32 = 0x96;
/// Choice: x decides between y and z.
const CHOICE: i32 = 0xca;
/// Majority of x, y and z.
const MAJORITY: i32 = 0xe8;

/// Hashes blocks into one state per stream; all slices have one length.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn compress(states: &mut [State; STREAMS], blocks: [&[Block]; STREAMS]) {
    let count = blocks[0].len();
    let blocks = blocks.map(|blocks| &blocks[..count]);
    let mut state = load_states(states);
    for index in 0..count {
        let mut words = read_words(blocks.map(|stream| &stream[index]));
        let before = state;
        hash_block(&mut state, &mut words);
        for (word, add) in state.iter_mut().zip(before) {
            *word = _mm512_add_epi32(*word, add);
        }
    }
    store_states(&state, states);
}

/// The 64 rounds over a block whose words are in `w`, which then holds the last of the schedule.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn hash_block(state: &mut [__m512i; 8], w: &mut [__m512i; 16]) {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    let (constants, _) = K.as_chunks::<16>();
    for (sixteen, constants) in constants.iter().enumerate() {
        macro_rules! round {
            ($t:literal, $a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident) => {
                if sixteen > 0 {
                    w[$t] = next_word(w[$t], w[($t + 1) & 15], w[($t + 9) & 15], w[($t + 14) & 15]);
                }
                let k = _mm512_set1_epi32(constants[$t].cast_signed());
                let t1 = _mm512_add_epi32(
                    _mm512_add_epi32(_mm512_add_epi32($h, k), w[$t]),
                    _mm512_add_epi32(
                        rotations::<6, 11, 25>($e),
                        _mm512_ternarylogic_epi32::<CHOICE>($e, $f, $g),
                    ),
                );
                let t2 = _mm512_add_epi32(
                    rotations::<2, 13, 22>($a),
                    _mm512_ternarylogic_epi32::<MAJORITY>($a, $b, $c),
                );
                $d = _mm512_add_epi32($d, t1);
                $h = _mm512_add_epi32(t1, t2);
            };
        }
        round!(0, a b c d e f g h);
        round!(1, h a b c d e f g);
        round!(2, g h a b c d e f);
        round!(3, f g h a b c d e);
        round!(4, e f g h a b c d);
        round!(5, d e f g h a b c);
        round!(6, c d e f g h a b);
        round!(7, b c d e f g h a);
        round!(8, a b c d e f g h);
        round!(9, h a b c d e f g);
        round!(10, g h a b c d e f);
        round!(11, f g h a b c d e);
        round!(12, e f g h a b c d);
        round!(13, d e f g h a b c);
        round!(14, c d e f g h a b);
        round!(15, b c d e f g h a);
    }
    *state = [a, b, c, d, e, f, g, h];
}

/// The capital sigmas of 4.1.2: three rotations, combined.
#[inline]
#[target_feature(enable = "avx512f")]
fn rotations<const A: i32, const B: i32, const C: i32>(x: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<XOR>(
        _mm512_ror_epi32::<A>(x),
        _mm512_ror_epi32::<B>(x),
        _mm512_ror_epi32::<C>(x),
    )
}

/// The next word of the schedule from those 16, 15, 7 and 2 back (6.2.2 step 1).
#[inline]
#[target_feature(enable = "avx512f")]
fn next_word(w16: __m512i, w15: __m512i, w7: __m512i, w2: __m512i) -> __m512i {
    let s0 = _mm512_ternarylogic_epi32::<XOR>(
        _mm512_ror_epi32::<7>(w15),
        _mm512_ror_epi32::<18>(w15),
        _mm512_srli_epi32::<3>(w15),
    );
    let s1 = _mm512_ternarylogic_epi32::<XOR>(
        _mm512_ror_epi32::<17>(w2),
        _mm512_ror_epi32::<19>(w2),
        _mm512_srli_epi32::<10>(w2),
    );
    _mm512_add_epi32(_mm512_add_epi32(w16, s0), _mm512_add_epi32(w7, s1))
}

/// One block of each stream as sixteen vectors, each with one big-endian word of all streams.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn read_words(blocks: [&Block; STREAMS]) -> [__m512i; 16] {
    let mut rows = [_mm512_setzero_si512(); STREAMS];
    for (row, block) in rows.iter_mut().zip(blocks) {
        // SAFETY: both are 64 bytes without padding, and every pattern of bits is a value of both.
        *row = swap_bytes(unsafe { transmute::<Block, __m512i>(*block) });
    }
    transpose(&rows)
}

/// Reverses the bytes of each 32-bit word.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn swap_bytes(x: __m512i) -> __m512i {
    #[rustfmt::skip]
    let reversed = _mm512_set_epi8(
        12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3,
        12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3,
        12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3,
        12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3,
    );
    _mm512_shuffle_epi8(x, reversed)
}

/// Turns sixteen rows of sixteen words into columns.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(rows: &[__m512i; 16]) -> [__m512i; 16] {
    let zero = _mm512_setzero_si512();
    // Within each quarter of a vector: four words of four rows, turned.
    let mut quarters = [zero; 16];
    for group in 0..4 {
        let [r0, r1, r2, r3] = [0, 1, 2, 3].map(|row| rows[4 * group + row]);
        let (low_a, high_a) = (_mm512_unpacklo_epi32(r0, r1), _mm512_unpackhi_epi32(r0, r1));
        let (low_b, high_b) = (_mm512_unpacklo_epi32(r2, r3), _mm512_unpackhi_epi32(r2, r3));
        quarters[4 * group] = _mm512_unpacklo_epi64(low_a, low_b);
        quarters[4 * group + 1] = _mm512_unpackhi_epi64(low_a, low_b);
        quarters[4 * group + 2] = _mm512_unpacklo_epi64(high_a, high_b);
        quarters[4 * group + 3] = _mm512_unpackhi_epi64(high_a, high_b);
    }
    // Then the quarters themselves: word 4 q + i of all rows is quarter q of the vectors i.
    let mut columns = [zero; 16];
    for i in 0..4 {
        let [g0, g1, g2, g3] = [0, 1, 2, 3].map(|group| quarters[4 * group + i]);
        let even_low = _mm512_shuffle_i32x4::<0b10_00_10_00>(g0, g1);
        let odd_low = _mm512_shuffle_i32x4::<0b11_01_11_01>(g0, g1);
        let even_high = _mm512_shuffle_i32x4::<0b10_00_10_00>(g2, g3);
        let odd_high = _mm512_shuffle_i32x4::<0b11_01_11_01>(g2, g3);
        columns[i] = _mm512_shuffle_i32x4::<0b10_00_10_00>(even_low, even_high);
        columns[4 + i] = _mm512_shuffle_i32x4::<0b10_00_10_00>(odd_low, odd_high);
        columns[8 + i] = _mm512_shuffle_i32x4::<0b11_01_11_01>(even_low, even_high);
        columns[12 + i] = _mm512_shuffle_i32x4::<0b11_01_11_01>(odd_low, odd_high);
    }
    columns
}

/// Turns one state per stream into one vector per word.
#[target_feature(enable = "avx512f")]
fn load_states(states: &[State; STREAMS]) -> [__m512i; 8] {
    std::array::from_fn(|word| {
        // SAFETY: both are 64 bytes without padding, and every pattern of bits is a value of both.
        unsafe { transmute::<[u32; STREAMS], __m512i>(states.map(|state| state[word])) }
    })
}

/// The reverse of [`load_states`].
#[target_feature(enable = "avx512f")]
fn store_states(vectors: &[__m512i; 8], states: &mut [State; STREAMS]) {
    for (word, &vector) in vectors.iter().enumerate() {
        // SAFETY: both are 64 bytes without padding, and every pattern of bits is a value of both.
        let lanes = unsafe { transmute::<__m512i, [u32; STREAMS]>(vector) };
        for (state, lane) in states.iter_mut().zip(lanes) {
            state[word] = lane;
        }
    }
}
