//! Eight streams at once, one in each 32-bit lane of a 256-bit vector (6.2.2 with vectors for words).
//!
//! Written for an emulator that translates vector code, QEMU's TCG: there a vector operation costs
//! three or four host instructions, but a vector load or store costs four checked 64-bit accesses
//! (some fifty instructions and a failed store forwarding), and shuffles, blends and byte swaps of
//! vectors each call a helper. So:
//! - the state, the last two words and the oldest one stay in registers, nothing spills, and a
//!   round touches memory three times: store this word, load the ones 15 and 7 back;
//! - bytes are swapped in integer registers and lanes meet by storing words side by side;
//! - streams are read one after the other, eight blocks at a time. Leaves lie a power of two
//!   apart, and their pages fall into the same few entries of the emulator's direct-mapped TLB:
//!   reading all streams in turn misses it every time and is five times slower;
//! - eight rounds make a loop body, after which the roles of the state are back in their
//!   registers. Moves would cost more, and a longer body leaves the instruction cache.
//!
//! The steps are assembly because a compiler optimises for a CPU: it spills to interleave rounds
//! and makes shuffles and blends of scalar reads, which together cost a factor of eight here.

#![expect(
    clippy::many_single_char_names,
    reason = "the working variables have the names of 6.2.2"
)]

use std::arch::asm;
use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_extract_epi64, _mm256_setr_epi32, _mm256_setzero_si256,
    _mm256_xor_si256,
};
use std::hint::black_box;

use crate::sha256::{Block, K, State};

/// Blocks of each stream that are read at a time.
const STAGED: usize = 8;

/// The schedule of one block: each word as a vector of its eight streams.
type Schedule = [__m256i; 64];

/// Hashes blocks into one state per stream; all slices have one length.
#[target_feature(enable = "avx2")]
pub(super) fn compress(states: &mut [State; 8], blocks: [&[Block]; 8]) {
    let count = blocks[0].len();
    assert!(
        blocks.iter().all(|stream| stream.len() == count),
        "streams of different lengths"
    );

    let mut state = load(states);
    let mut schedules = [[_mm256_setzero_si256(); 64]; STAGED];
    for start in (0..count).step_by(STAGED) {
        let end = count.min(start + STAGED);
        for (stream, blocks) in blocks.iter().enumerate() {
            for (schedule, block) in schedules.iter_mut().zip(&blocks[start..end]) {
                read_block(schedule, stream, block);
            }
        }
        for schedule in &mut schedules[..end - start] {
            let before = state;
            hash_block(&mut state, schedule);
            for (word, add) in state.iter_mut().zip(before) {
                *word = _mm256_add_epi32(*word, add);
            }
        }
    }
    store(state, states);
}

/// The 64 rounds over a block whose first sixteen words are in `schedule`.
#[inline]
#[target_feature(enable = "avx2")]
fn hash_block(state: &mut [__m256i; 8], schedule: &mut Schedule) {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    let mut bc = _mm256_xor_si256(b, c);
    let (constants, _) = K.as_chunks::<8>();

    // Not unrolled, because the translation of all sixteen would leave the instruction cache.
    let (given, _) = black_box(&schedule[..16]).as_chunks::<8>();
    for (words, k) in given.iter().zip(constants) {
        round::<0>([a, b, e, f, g], &mut d, &mut h, &mut bc, words[0], k);
        round::<1>([h, a, d, e, f], &mut c, &mut g, &mut bc, words[1], k);
        round::<2>([g, h, c, d, e], &mut b, &mut f, &mut bc, words[2], k);
        round::<3>([f, g, b, c, d], &mut a, &mut e, &mut bc, words[3], k);
        round::<4>([e, f, a, b, c], &mut h, &mut d, &mut bc, words[4], k);
        round::<5>([d, e, h, a, b], &mut g, &mut c, &mut bc, words[5], k);
        round::<6>([c, d, g, h, a], &mut f, &mut b, &mut bc, words[6], k);
        round::<7>([b, c, f, g, h], &mut e, &mut a, &mut bc, words[7], k);
    }

    let (mut oldest, mut even, mut odd) = (schedule[0], schedule[14], schedule[15]);
    for (eight, k) in constants[2..].iter().enumerate() {
        let Some(window) = schedule[8 * eight..].first_chunk_mut::<24>() else {
            break;
        };
        next_word::<0>(window, &mut oldest, &mut even);
        round::<0>([a, b, e, f, g], &mut d, &mut h, &mut bc, even, k);
        next_word::<1>(window, &mut oldest, &mut odd);
        round::<1>([h, a, d, e, f], &mut c, &mut g, &mut bc, odd, k);
        next_word::<2>(window, &mut oldest, &mut even);
        round::<2>([g, h, c, d, e], &mut b, &mut f, &mut bc, even, k);
        next_word::<3>(window, &mut oldest, &mut odd);
        round::<3>([f, g, b, c, d], &mut a, &mut e, &mut bc, odd, k);
        next_word::<4>(window, &mut oldest, &mut even);
        round::<4>([e, f, a, b, c], &mut h, &mut d, &mut bc, even, k);
        next_word::<5>(window, &mut oldest, &mut odd);
        round::<5>([d, e, h, a, b], &mut g, &mut c, &mut bc, odd, k);
        next_word::<6>(window, &mut oldest, &mut even);
        round::<6>([c, d, g, h, a], &mut f, &mut b, &mut bc, even, k);
        next_word::<7>(window, &mut oldest, &mut odd);
        round::<7>([b, c, f, g, h], &mut e, &mut a, &mut bc, odd, k);
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

/// Reads the sixteen big-endian words of a block into the lane of its stream.
#[inline]
#[target_feature(enable = "avx2")]
fn read_block(schedule: &mut Schedule, stream: usize, block: &Block) {
    assert!(stream < 8, "no lane for the stream");
    macro_rules! read_pair {
        ($pair:literal) => {
            // SAFETY: reads eight bytes of the block and writes the lane of `stream` in two words.
            unsafe {
                asm!(
                    "mov {pair}, qword ptr [{block} + {from}]",
                    "bswap {pair}",
                    "mov dword ptr [{schedule} + 4*{stream} + {odd}], {pair:e}",
                    "shr {pair}, 32",
                    "mov dword ptr [{schedule} + 4*{stream} + {even}], {pair:e}",
                    block = in(reg) block, from = const 8 * $pair,
                    schedule = in(reg) &raw mut *schedule, stream = in(reg) stream,
                    even = const 64 * $pair, odd = const 64 * $pair + 32,
                    pair = out(reg) _,
                    options(nostack)
                );
            }
        };
    }
    read_pair!(0);
    read_pair!(1);
    read_pair!(2);
    read_pair!(3);
    read_pair!(4);
    read_pair!(5);
    read_pair!(6);
    read_pair!(7);
}

/// Turns one state per stream into one vector per word.
#[target_feature(enable = "avx2")]
fn load(states: &[State; 8]) -> [__m256i; 8] {
    let mut vectors = [_mm256_setzero_si256(); 8];
    for (word, vector) in vectors.iter_mut().enumerate() {
        let [s0, s1, s2, s3, s4, s5, s6, s7] = states.map(|state| state[word].cast_signed());
        *vector = _mm256_setr_epi32(s0, s1, s2, s3, s4, s5, s6, s7);
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
        for (two, pair) in states.as_chunks_mut::<2>().0.iter_mut().zip(pairs) {
            two[0][word] = pair.cast_unsigned() as u32;
            two[1][word] = (pair.cast_unsigned() >> 32) as u32;
        }
    }
}
