//! Interleaved streams on the SHA instructions.
//!
//! The unit starts a new `sha256rnds2` before the previous one is done, but the rounds of one
//! stream wait for each other; several independent streams fill the gap.

use std::arch::x86_64::{
    __m128i, _mm_add_epi32, _mm_alignr_epi8, _mm_extract_epi32, _mm_set_epi32, _mm_set_epi64x,
    _mm_setzero_si128, _mm_sha256msg1_epu32, _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32,
    _mm_shuffle_epi8, _mm_shuffle_epi32,
};

use crate::sha256::{Block, K, State};

/// Hashes blocks into one state per stream; all slices have one length.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[expect(
    clippy::needless_range_loop,
    reason = "the index walks all streams in step, and the others in `blocks` the same way"
)]
pub(super) fn compress<const N: usize>(states: &mut [State; N], blocks: [&[Block]; N]) {
    let count = blocks[0].len();
    let blocks = blocks.map(|blocks| &blocks[..count]);

    // The instructions want the words of the state as {a, b, e, f} and {c, d, g, h}, highest lane first.
    let mut abef = [_mm_setzero_si128(); N];
    let mut cdgh = [_mm_setzero_si128(); N];
    for stream in 0..N {
        let word = states[stream].map(u32::cast_signed);
        abef[stream] = _mm_set_epi32(word[0], word[1], word[4], word[5]);
        cdgh[stream] = _mm_set_epi32(word[2], word[3], word[6], word[7]);
    }

    for index in 0..count {
        let before = (abef, cdgh);
        // The last sixteen words of the schedule of each stream, four to a vector.
        let mut w = [[_mm_setzero_si128(); N]; 4];
        macro_rules! four_rounds {
            ($step:literal) => {
                let k = _mm_set_epi32(
                    K[4 * $step + 3].cast_signed(),
                    K[4 * $step + 2].cast_signed(),
                    K[4 * $step + 1].cast_signed(),
                    K[4 * $step].cast_signed(),
                );
                for stream in 0..N {
                    let word = if $step < 4 {
                        load::<{ $step & 3 }>(&blocks[stream][index])
                    } else {
                        next_words(
                            w[$step & 3][stream],
                            w[($step + 1) & 3][stream],
                            w[($step + 2) & 3][stream],
                            w[($step + 3) & 3][stream],
                        )
                    };
                    w[$step & 3][stream] = word;
                    let sum = _mm_add_epi32(word, k);
                    cdgh[stream] = _mm_sha256rnds2_epu32(cdgh[stream], abef[stream], sum);
                    abef[stream] = _mm_sha256rnds2_epu32(
                        abef[stream],
                        cdgh[stream],
                        _mm_shuffle_epi32::<0x0e>(sum),
                    );
                }
            };
        }
        four_rounds!(0);
        four_rounds!(1);
        four_rounds!(2);
        four_rounds!(3);
        four_rounds!(4);
        four_rounds!(5);
        four_rounds!(6);
        four_rounds!(7);
        four_rounds!(8);
        four_rounds!(9);
        four_rounds!(10);
        four_rounds!(11);
        four_rounds!(12);
        four_rounds!(13);
        four_rounds!(14);
        four_rounds!(15);
        for stream in 0..N {
            abef[stream] = _mm_add_epi32(abef[stream], before.0[stream]);
            cdgh[stream] = _mm_add_epi32(cdgh[stream], before.1[stream]);
        }
    }

    for stream in 0..N {
        let (abef, cdgh) = (abef[stream], cdgh[stream]);
        states[stream] = [
            _mm_extract_epi32::<3>(abef),
            _mm_extract_epi32::<2>(abef),
            _mm_extract_epi32::<3>(cdgh),
            _mm_extract_epi32::<2>(cdgh),
            _mm_extract_epi32::<1>(abef),
            _mm_extract_epi32::<0>(abef),
            _mm_extract_epi32::<1>(cdgh),
            _mm_extract_epi32::<0>(cdgh),
        ]
        .map(i32::cast_unsigned);
    }
}

/// Reads four big-endian words, the `PART`th of a block.
#[inline]
#[target_feature(enable = "sha,sse4.1,ssse3")]
fn load<const PART: usize>(block: &Block) -> __m128i {
    let halves = block.as_chunks::<8>().0;
    let [low, high] = [halves[2 * PART], halves[2 * PART + 1]].map(i64::from_le_bytes);
    let swap = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    _mm_shuffle_epi8(_mm_set_epi64x(high, low), swap)
}

/// The next four words of the schedule after sixteen (6.2.2 step 1).
#[inline]
#[target_feature(enable = "sha,sse4.1,ssse3")]
fn next_words(w0: __m128i, w4: __m128i, w8: __m128i, w12: __m128i) -> __m128i {
    let seven_back = _mm_alignr_epi8::<4>(w12, w8);
    _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(w0, w4), seven_back), w12)
}
