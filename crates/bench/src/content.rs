//! Incompressible content that can be made again from a seed.
//!
//! The generator is xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number
//! generators", 2018), seeded by splitmix64: fast enough that making 512 MiB costs well under a
//! second, and good enough that no compressor or de-duplicator finds anything in it.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

/// Bytes that are generated and compared at a time.
const CHUNK_BYTES: usize = 256 * 1024;

/// A stream of pseudorandom bytes.
#[derive(Debug, Clone)]
pub struct Generator {
    state: [u64; 4],
}

impl Generator {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        let mut mixer = seed;
        Self {
            state: std::array::from_fn(|_| split_mix(&mut mixer)),
        }
    }

    fn next(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// Fills `buffer` with the next bytes. The length of every call but the last must be a
    /// multiple of 8, or the stream depends on how it was cut.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for piece in buffer.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            piece.copy_from_slice(&bytes[..piece.len()]);
        }
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Writes `size_bytes` of the seed's stream to a new file.
pub fn write_file(path: &Path, seed: u64, size_bytes: u64) -> io::Result<()> {
    let mut file = fs_err::File::create_new(path)?;
    let mut generator = Generator::new(seed);
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut left = size_bytes;
    while left > 0 {
        let piece = &mut buffer[..CHUNK_BYTES.min(usize::try_from(left).unwrap_or(CHUNK_BYTES))];
        generator.fill(piece);
        file.write_all(piece)?;
        left -= piece.len() as u64;
    }
    Ok(())
}

/// How a file differs from the stream it should hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// The first byte that differs is at this offset.
    At(u64),
    /// The file has this length.
    Length(u64),
}

/// Compares a file with the seed's stream, byte for byte; `None` when they are equal.
pub fn compare_file(path: &Path, seed: u64, size_bytes: u64) -> io::Result<Option<Difference>> {
    let file: File = fs_err::File::open(path)?.into();
    let found_bytes = file.metadata()?.len();
    if found_bytes != size_bytes {
        return Ok(Some(Difference::Length(found_bytes)));
    }
    let mut reader = BufReader::with_capacity(CHUNK_BYTES, file);
    let mut generator = Generator::new(seed);
    let mut expected = vec![0; CHUNK_BYTES];
    let mut found = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    while offset < size_bytes {
        let left = usize::try_from(size_bytes - offset).unwrap_or(CHUNK_BYTES);
        let length = CHUNK_BYTES.min(left);
        generator.fill(&mut expected[..length]);
        reader.read_exact(&mut found[..length])?;
        if let Some(at) = (0..length).find(|&i| expected[i] != found[i]) {
            return Ok(Some(Difference::At(offset + at as u64)));
        }
        offset += length as u64;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_reference_stream() {
        // From a separate implementation in Python of both generators, seed 42.
        let mut generator = Generator::new(42);
        let found: Vec<u64> = (0..4).map(|_| generator.next()).collect();
        assert_eq!(found, REFERENCE_SEED_42);
    }
    const REFERENCE_SEED_42: [u64; 4] = [
        0x1578_0b2e_0c2e_c716,
        0x6104_d986_6d11_3a7e,
        0xae17_5332_39e4_99a1,
        0xecb8_ad47_03b3_60a1,
    ];

    #[test]
    fn does_not_depend_on_how_it_is_cut() {
        let mut whole = vec![0; 1000];
        Generator::new(7).fill(&mut whole);
        let mut generator = Generator::new(7);
        let mut pieces = vec![0; 1000];
        generator.fill(&mut pieces[..8]);
        generator.fill(&mut pieces[8..512]);
        generator.fill(&mut pieces[512..]);
        assert_eq!(whole, pieces);
    }

    #[test]
    fn a_written_file_compares_equal_and_every_fault_is_found() {
        let dir = tempfile::tempdir().unwrap();
        // Nothing, below one chunk, exactly one, one and a bit.
        for size_bytes in [0, 5, CHUNK_BYTES as u64, CHUNK_BYTES as u64 + 3] {
            let path = dir.path().join(size_bytes.to_string());
            write_file(&path, 3, size_bytes).unwrap();
            assert_eq!(compare_file(&path, 3, size_bytes).unwrap(), None);
            assert_eq!(
                compare_file(&path, 3, size_bytes + 1).unwrap(),
                Some(Difference::Length(size_bytes))
            );
            if size_bytes > 0 {
                let mut bytes = std::fs::read(&path).unwrap();
                *bytes.last_mut().unwrap() ^= 1;
                std::fs::write(&path, bytes).unwrap();
                assert_eq!(
                    compare_file(&path, 3, size_bytes).unwrap(),
                    Some(Difference::At(size_bytes - 1))
                );
            }
        }
    }

    #[test]
    fn never_overwrites_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        write_file(&path, 1, 8).unwrap();
        assert!(write_file(&path, 1, 8).is_err());
    }
}
