//! Several streams at once, one in each 32-bit lane of a vector: the code of 6.2.2 with vectors for words.
//!
//! Written for an emulator that translates vector code: there a vector operation costs about
//! three host instructions, a vector load or store four checked 64-bit accesses (some fifty), and
//! shuffles call a helper. So there are no shuffles at all, not even to swap bytes; the message
//! is read 64 bits at a time in integer registers, and the schedule is stored once and read twice.
//! Eight rounds make a loop body, because the roles of the state return to their registers after
//! eight, and because the translation of a longer body leaves the instruction cache.

macro_rules! multi_buffer {
    (
        $feature:literal, $vector:ty, $streams:literal,
        pairs: [$($pair:literal),+], set_pairs: $set_pairs:ident,
        get_pair: [$($get_pair:expr),+],
        add: $add:ident, xor: $xor:ident, and: $and:ident, or: $or:ident,
        shl: $shl:ident, shr: $shr:ident, shl64: $shl64:ident, shr64: $shr64:ident, splat: $splat:ident $(,)?
    ) => {
        use std::hint::black_box;

        use crate::sha256::{Block, K, State};

        /// Streams in the lower half of each 64-bit pair of lanes; as many are in the upper halves.
        const HALF: usize = $streams / 2;

        /// Hashes blocks into one state per stream; all slices have one length.
        #[target_feature(enable = $feature)]
        pub(crate) fn compress(states: &mut [State; $streams], blocks: [&[Block]; $streams]) {
            let count = blocks[0].len();
            let blocks = blocks.map(|blocks| &blocks[..count]);
            let k: &[u32; 64] = black_box(&K);

            let pair = |word: usize, low: usize| {
                (u64::from(states[low + HALF][word]) << 32 | u64::from(states[low][word])).cast_signed()
            };
            let mut state = [$splat(0); 8];
            for (word, vector) in state.iter_mut().enumerate() {
                *vector = $set_pairs($(pair(word, $pair)),+);
            }

            let mut w = [$splat(0); 64];
            for index in 0..count {
                schedule_start(&mut w, blocks.map(|blocks| &blocks[index]));
                let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
                let mut bc = $xor(b, c);

                macro_rules! round {
                    ($a:ident, $b:ident, $d:ident, $e:ident, $f:ident, $g:ident, $h:ident, $w:expr, $k:expr) => {
                        let t1 = $add($h, $add($w, $splat($k.cast_signed())));
                        let choice = $xor($g, $and($e, $xor($f, $g)));
                        let t1 = $add(t1, $add(choice, big_sigma::<6, 26, 11, 21, 25, 7>($e)));
                        $d = $add($d, t1);
                        let ab = $xor($a, $b);
                        let majority = $xor($b, $and(ab, bc));
                        $h = $add(t1, $add(majority, big_sigma::<2, 30, 13, 19, 22, 10>($a)));
                        bc = ab;
                    };
                }
                macro_rules! eight_rounds {
                    ($base:expr, $word:expr) => {
                        let k: &[u32; 8] = k[$base..].first_chunk().expect("eight constants");
                        round!(a, b, d, e, f, g, h, $word(0), k[0]);
                        round!(h, a, c, d, e, f, g, $word(1), k[1]);
                        round!(g, h, b, c, d, e, f, $word(2), k[2]);
                        round!(f, g, a, b, c, d, e, $word(3), k[3]);
                        round!(e, f, h, a, b, c, d, $word(4), k[4]);
                        round!(d, e, g, h, a, b, c, $word(5), k[5]);
                        round!(c, d, f, g, h, a, b, $word(6), k[6]);
                        round!(b, c, e, f, g, h, a, $word(7), k[7]);
                    };
                }

                for base in [0, 8] {
                    let words: &[$vector; 8] = w[base..].first_chunk().expect("eight words");
                    eight_rounds!(base, |t: usize| words[t]);
                }
                for base in (16..64).step_by(8) {
                    let words: &mut [$vector; 24] = w[base - 16..].first_chunk_mut().expect("24 words");
                    eight_rounds!(base, |t: usize| {
                        let word = $add(
                            $add(words[t], small_sigma::<7, 25, 18, 14, 3>(words[t + 1])),
                            $add(words[t + 9], small_sigma::<17, 15, 19, 13, 10>(words[t + 14])),
                        );
                        words[t + 16] = word;
                        word
                    });
                }

                for (sum, word) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
                    *sum = $add(*sum, word);
                }
            }

            for (word, vector) in state.into_iter().enumerate() {
                let pairs: [i64; HALF] = [$($get_pair(vector)),+];
                for (low, pair) in pairs.map(i64::cast_unsigned).into_iter().enumerate() {
                    states[low][word] = pair as u32;
                    states[low + HALF][word] = (pair >> 32) as u32;
                }
            }
        }

        /// Reads the sixteen words of a block in every lane.
        ///
        /// Two big-endian words make one 64-bit read. The streams of the lower and of the upper
        /// halves come together by shifts, which keeps each stream in one lane for all words.
        #[inline]
        #[target_feature(enable = $feature)]
        fn schedule_start(w: &mut [$vector; 64], blocks: [&Block; $streams]) {
            for index in 0..8 {
                let read = |stream: usize| u64::from_be_bytes(blocks[stream].as_chunks().0[index]).cast_signed();
                let low = $set_pairs($(read($pair)),+);
                let high = $set_pairs($(read($pair + HALF)),+);
                w[2 * index] = $or($shr64::<32>(low), $shl64::<32>($shr64::<32>(high)));
                w[2 * index + 1] = $or($shr64::<32>($shl64::<32>(low)), $shl64::<32>(high));
            }
        }

        /// Three rotations to the right, each given with its complement to 32 (4.4 and 4.5).
        #[inline]
        #[target_feature(enable = $feature)]
        fn big_sigma<const R1: i32, const L1: i32, const R2: i32, const L2: i32, const R3: i32, const L3: i32>(
            x: $vector,
        ) -> $vector {
            let first = $xor($shr::<R1>(x), $shl::<L1>(x));
            let second = $xor($shr::<R2>(x), $shl::<L2>(x));
            let third = $xor($shr::<R3>(x), $shl::<L3>(x));
            $xor($xor(first, second), third)
        }

        /// Two rotations and a shift to the right (4.6 and 4.7).
        #[inline]
        #[target_feature(enable = $feature)]
        fn small_sigma<const R1: i32, const L1: i32, const R2: i32, const L2: i32, const SHIFT: i32>(
            x: $vector,
        ) -> $vector {
            let first = $xor($shr::<R1>(x), $shl::<L1>(x));
            let second = $xor($shr::<R2>(x), $shl::<L2>(x));
            $xor($xor(first, second), $shr::<SHIFT>(x))
        }
    };
}

/// Four streams in 128-bit vectors.
pub(super) mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_add_epi32, _mm_and_si128, _mm_cvtsi128_si64, _mm_or_si128, _mm_set_epi64x,
        _mm_set1_epi32, _mm_slli_epi32, _mm_slli_epi64, _mm_srli_epi32, _mm_srli_epi64,
        _mm_unpackhi_epi64, _mm_xor_si128,
    };

    multi_buffer!(
        "sse2", __m128i, 4,
        pairs: [1, 0], set_pairs: _mm_set_epi64x,
        get_pair: [_mm_cvtsi128_si64, |v| _mm_cvtsi128_si64(_mm_unpackhi_epi64(v, v))],
        add: _mm_add_epi32, xor: _mm_xor_si128, and: _mm_and_si128, or: _mm_or_si128,
        shl: _mm_slli_epi32, shr: _mm_srli_epi32, shl64: _mm_slli_epi64, shr64: _mm_srli_epi64,
        splat: _mm_set1_epi32,
    );
}

/// Eight streams in 256-bit vectors.
pub(super) mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi32, _mm256_and_si256, _mm256_extract_epi64, _mm256_or_si256,
        _mm256_set_epi64x, _mm256_set1_epi32, _mm256_slli_epi32, _mm256_slli_epi64,
        _mm256_srli_epi32, _mm256_srli_epi64, _mm256_xor_si256,
    };

    multi_buffer!(
        "avx2", __m256i, 8,
        pairs: [3, 2, 1, 0], set_pairs: _mm256_set_epi64x,
        get_pair: [
            _mm256_extract_epi64::<0>, _mm256_extract_epi64::<1>, _mm256_extract_epi64::<2>, _mm256_extract_epi64::<3>
        ],
        add: _mm256_add_epi32, xor: _mm256_xor_si256, and: _mm256_and_si256, or: _mm256_or_si256,
        shl: _mm256_slli_epi32, shr: _mm256_srli_epi32, shl64: _mm256_slli_epi64, shr64: _mm256_srli_epi64,
        splat: _mm256_set1_epi32,
    );
}
