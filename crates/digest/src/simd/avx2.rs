//! Eight streams at once, one in each 32-bit lane of a 256-bit vector (6.2.2 with vectors for words).
//!
//! Written for an emulator that translates vector code, QEMU's TCG: there a vector operation costs
//! three or four host instructions, but a vector load or store costs four checked 64-bit accesses
//! (some fifty instructions and a failed store forwarding), and shuffles, blends and byte swaps of
//! vectors each call a helper. So:
//! - the state, the last two words and the oldest one stay in registers, nothing spills, and a
//!   round touches memory three times: store this word, load the ones 15 and 7 back;
//! - bytes are swapped in integer registers, 64 bits at a time, and lanes meet by shifts alone;
//! - eight rounds make a loop body, after which the roles of the state are back in their
//!   registers. Moves would cost more, and a longer body leaves the instruction cache.
//!
//! It is assembly because a compiler turns each of these three back: it spills to interleave
//! rounds and makes blends and shuffles of the shifts, which together cost a factor of eight.

#![expect(
    clippy::many_single_char_names,
    reason = "the working variables have the names of 6.2.2"
)]

use std::arch::asm;
use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_extract_epi64, _mm256_set_epi64x, _mm256_setzero_si256,
    _mm256_xor_si256,
};

use crate::sha256::{Block, K, State};

/// Streams in the lower half of each 64-bit pair of lanes; as many are in the upper halves.
const HALF: usize = 4;

/// Hashes blocks into one state per stream; all slices have one length.
#[target_feature(enable = "avx2")]
pub(super) fn compress(states: &mut [State; 8], blocks: [&[Block]; 8]) {
    let count = blocks[0].len();
    assert!(
        blocks.iter().all(|stream| stream.len() == count),
        "streams of different lengths"
    );
    let streams = blocks.map(|stream| stream.as_ptr().cast::<u8>());

    let mut state = load(states);
    let mut words = [_mm256_setzero_si256(); 64];
    for index in 0..count {
        let before = state;
        // SAFETY: `index` is below the length of every stream.
        unsafe { hash_block(&mut state, &mut words, &streams, index * size_of::<Block>()) };
        for (word, add) in state.iter_mut().zip(before) {
            *word = _mm256_add_epi32(*word, add);
        }
    }
    store(state, states);
}

/// The 64 rounds over the block at byte `offset` of each stream.
///
/// # Safety
/// A whole block must be readable there in every stream.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn hash_block(
    state: &mut [__m256i; 8],
    words: &mut [__m256i; 64],
    streams: &[*const u8; 8],
    offset: usize,
) {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    let mut bc = _mm256_xor_si256(b, c);
    let (mut even, mut odd) = (bc, bc);

    macro_rules! two_rounds {
        ($a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident, $first:literal, $second:literal, $k:ident) => {
            round::<$first>([$a, $b, $e, $f, $g], &mut $d, &mut $h, &mut bc, even, $k);
            round::<$second>([$h, $a, $d, $e, $f], &mut $c, &mut $g, &mut bc, odd, $k);
        };
    }

    let (constants, _) = K.as_chunks::<8>();
    for (eight, k) in constants[..2].iter().enumerate() {
        macro_rules! start {
            ($pair:literal) => {
                // SAFETY: the two halves of the block are 32 bytes each, and a pair is 8 bytes.
                (even, odd) = unsafe { read_pair::<$pair>(streams, offset + 32 * eight) };
                words[8 * eight + 2 * $pair] = even;
                words[8 * eight + 2 * $pair + 1] = odd;
            };
        }
        start!(0);
        two_rounds!(a b c d e f g h, 0, 1, k);
        start!(1);
        two_rounds!(g h a b c d e f, 2, 3, k);
        start!(2);
        two_rounds!(e f g h a b c d, 4, 5, k);
        start!(3);
        two_rounds!(c d e f g h a b, 6, 7, k);
    }

    let mut oldest = words[0];
    for (eight, k) in constants[2..].iter().enumerate() {
        let Some(window) = words[8 * eight..].first_chunk_mut::<24>() else {
            break;
        };
        macro_rules! two_scheduled_rounds {
            ($a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident, $first:literal, $second:literal) => {
                next_word::<$first>(window, &mut oldest, &mut even);
                round::<$first>([$a, $b, $e, $f, $g], &mut $d, &mut $h, &mut bc, even, k);
                next_word::<$second>(window, &mut oldest, &mut odd);
                round::<$second>([$h, $a, $d, $e, $f], &mut $c, &mut $g, &mut bc, odd, k);
            };
        }
        two_scheduled_rounds!(a b c d e f g h, 0, 1);
        two_scheduled_rounds!(g h a b c d e f, 2, 3);
        two_scheduled_rounds!(e f g h a b c d, 4, 5);
        two_scheduled_rounds!(c d e f g h a b, 6, 7);
    }
    *state = [a, b, c, d, e, f, g, h];
}

/// One round: `d` becomes the new e and `h` the new a.
///
/// Majority is b ^ ((a ^ b) & (b ^ c)), and a ^ b is the b ^ c of the next round.
#[inline]
#[target_feature(enable = "avx2")]
fn round<const ROUND: usize>(
    [a, b, e, f, g]: [__m256i; 5],
    d: &mut __m256i,
    h: &mut __m256i,
    bc: &mut __m256i,
    word: __m256i,
    constants: &[u32; 8],
) {
    const { assert!(ROUND < 8) };
    // SAFETY: reads the constant at index `ROUND` and otherwise works on registers.
    unsafe {
        asm!(
            "vpbroadcastd {x}, dword ptr [{constants} + {constant}]",
            "vpaddd {h}, {h}, {word}",
            "vpaddd {h}, {h}, {x}",
            // Choice: g ^ (e & (f ^ g)).
            "vpxor {x}, {f}, {g}",
            "vpand {x}, {x}, {e}",
            "vpxor {x}, {x}, {g}",
            "vpaddd {h}, {h}, {x}",
            // Rotations of e by 6, 11 and 25.
            "vpsrld {x}, {e}, 6",
            "vpslld {y}, {e}, 26",
            "vpxor {x}, {x}, {y}",
            "vpsrld {y}, {e}, 11",
            "vpxor {x}, {x}, {y}",
            "vpslld {y}, {e}, 21",
            "vpxor {x}, {x}, {y}",
            "vpsrld {y}, {e}, 25",
            "vpxor {x}, {x}, {y}",
            "vpslld {y}, {e}, 7",
            "vpxor {x}, {x}, {y}",
            "vpaddd {h}, {h}, {x}",
            "vpaddd {d}, {d}, {h}",
            // Majority; the new a ^ b stays in x.
            "vpxor {x}, {a}, {b}",
            "vpand {bc}, {bc}, {x}",
            "vpxor {bc}, {bc}, {b}",
            "vpaddd {h}, {h}, {bc}",
            // Rotations of a by 2, 13 and 22.
            "vpsrld {bc}, {a}, 2",
            "vpslld {y}, {a}, 30",
            "vpxor {bc}, {bc}, {y}",
            "vpsrld {y}, {a}, 13",
            "vpxor {bc}, {bc}, {y}",
            "vpslld {y}, {a}, 19",
            "vpxor {bc}, {bc}, {y}",
            "vpsrld {y}, {a}, 22",
            "vpxor {bc}, {bc}, {y}",
            "vpslld {y}, {a}, 10",
            "vpxor {bc}, {bc}, {y}",
            "vpaddd {h}, {h}, {bc}",
            constants = in(reg) constants, constant = const 4 * ROUND,
            a = in(ymm_reg) a, b = in(ymm_reg) b, d = inout(ymm_reg) *d,
            e = in(ymm_reg) e, f = in(ymm_reg) f, g = in(ymm_reg) g, h = inout(ymm_reg) *h,
            bc = inout(ymm_reg) *bc => _, x = out(ymm_reg) *bc, y = out(ymm_reg) _,
            word = in(ymm_reg) word,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
}

/// Word `16 + T` of the schedule from the sixteen before it, of which `window` begins with the first.
///
/// `oldest` is the word 16 back and becomes the one 15 back; `word` is the word 2 back and becomes
/// the new one.
#[inline]
#[target_feature(enable = "avx2")]
fn next_word<const T: usize>(window: &mut [__m256i; 24], oldest: &mut __m256i, word: &mut __m256i) {
    const { assert!(T < 8) };
    // SAFETY: reads and writes inside of `window`, whose elements have the alignment of their type.
    unsafe {
        asm!(
            "vmovdqa {w15}, ymmword ptr [{window} + {back15}]",
            "vpaddd {oldest}, {oldest}, ymmword ptr [{window} + {back7}]",
            // Rotations of the word 2 back by 17 and 19 and its shift by 10.
            "vpsrld {x}, {word}, 17",
            "vpslld {y}, {word}, 15",
            "vpxor {x}, {x}, {y}",
            "vpsrld {y}, {word}, 19",
            "vpxor {x}, {x}, {y}",
            "vpslld {y}, {word}, 13",
            "vpxor {x}, {x}, {y}",
            "vpsrld {word}, {word}, 10",
            "vpxor {word}, {word}, {x}",
            "vpaddd {word}, {word}, {oldest}",
            // Rotations of the word 15 back by 7 and 18 and its shift by 3.
            "vpsrld {x}, {w15}, 7",
            "vpslld {y}, {w15}, 25",
            "vpxor {x}, {x}, {y}",
            "vpsrld {y}, {w15}, 18",
            "vpxor {x}, {x}, {y}",
            "vpslld {y}, {w15}, 14",
            "vpxor {x}, {x}, {y}",
            "vpsrld {y}, {w15}, 3",
            "vpxor {x}, {x}, {y}",
            "vpaddd {word}, {word}, {x}",
            "vmovdqa ymmword ptr [{window} + {new}], {word}",
            window = in(reg) window,
            back15 = const 32 * (T + 1), back7 = const 32 * (T + 9), new = const 32 * (T + 16),
            oldest = inout(ymm_reg) *oldest => _, w15 = out(ymm_reg) *oldest,
            word = inout(ymm_reg) *word, x = out(ymm_reg) _, y = out(ymm_reg) _,
            options(nostack, preserves_flags)
        );
    }
}

/// Reads two words of every stream: the big-endian pair number `PAIR` from byte `offset` on.
///
/// # Safety
/// `8 * (PAIR + 1)` bytes must be readable there in every stream.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn read_pair<const PAIR: usize>(
    streams: &[*const u8; 8],
    offset: usize,
) -> (__m256i, __m256i) {
    let [s0, s1, s2, s3, s4, s5, s6, s7] = *streams;
    // SAFETY: the caller answers for what they read.
    let (low, high) = unsafe {
        (
            read_four::<PAIR>([s0, s1, s2, s3], offset),
            read_four::<PAIR>([s4, s5, s6, s7], offset),
        )
    };
    let (even, odd);
    // SAFETY: works on registers alone.
    unsafe {
        asm!(
            "vpsrlq {even}, {low}, 32",
            "vpsrlq {odd}, {high}, 32",
            "vpsllq {odd}, {odd}, 32",
            "vpor {even}, {even}, {odd}",
            "vpsllq {odd}, {low}, 32",
            "vpsrlq {odd}, {odd}, 32",
            "vpsllq {high}, {high}, 32",
            "vpor {odd}, {odd}, {high}",
            low = in(ymm_reg) low, high = inout(ymm_reg) high => _,
            even = out(ymm_reg) even, odd = out(ymm_reg) odd,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    (even, odd)
}

/// Reads a big-endian 64-bit number of each of four streams.
///
/// # Safety
/// As for [`read_pair`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn read_four<const PAIR: usize>([s0, s1, s2, s3]: [*const u8; 4], offset: usize) -> __m256i {
    let four;
    // SAFETY: the caller answers for the four reads; the rest works on registers.
    unsafe {
        asm!(
            "mov {number}, qword ptr [{s0} + {offset} + {pair}]",
            "bswap {number}",
            "vmovq {four:x}, {number}",
            "mov {number}, qword ptr [{s1} + {offset} + {pair}]",
            "bswap {number}",
            "vpinsrq {four:x}, {four:x}, {number}, 1",
            "mov {number}, qword ptr [{s2} + {offset} + {pair}]",
            "bswap {number}",
            "vmovq {two:x}, {number}",
            "mov {number}, qword ptr [{s3} + {offset} + {pair}]",
            "bswap {number}",
            "vpinsrq {two:x}, {two:x}, {number}, 1",
            "vinserti128 {four:y}, {four:y}, {two:x}, 1",
            s0 = in(reg) s0, s1 = in(reg) s1, s2 = in(reg) s2, s3 = in(reg) s3,
            offset = in(reg) offset, pair = const 8 * PAIR,
            number = out(reg) _, four = out(ymm_reg) four, two = out(ymm_reg) _,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    four
}

/// Turns one state per stream into one vector per word.
#[target_feature(enable = "avx2")]
fn load(states: &[State; 8]) -> [__m256i; 8] {
    let pair = |word: usize, low: usize| {
        let (low, high) = (states[low][word], states[low + HALF][word]);
        (u64::from(high) << 32 | u64::from(low)).cast_signed()
    };
    let mut vectors = [_mm256_setzero_si256(); 8];
    for (word, vector) in vectors.iter_mut().enumerate() {
        *vector = _mm256_set_epi64x(pair(word, 3), pair(word, 2), pair(word, 1), pair(word, 0));
    }
    vectors
}

/// The reverse of [`load`].
#[target_feature(enable = "avx2")]
fn store(vectors: [__m256i; 8], states: &mut [State; 8]) {
    for (word, vector) in vectors.into_iter().enumerate() {
        let pairs = [
            _mm256_extract_epi64::<0>(vector),
            _mm256_extract_epi64::<1>(vector),
            _mm256_extract_epi64::<2>(vector),
            _mm256_extract_epi64::<3>(vector),
        ];
        for (low, pair) in pairs.map(i64::cast_unsigned).into_iter().enumerate() {
            states[low][word] = pair as u32;
            states[low + HALF][word] = (pair >> 32) as u32;
        }
    }
}
