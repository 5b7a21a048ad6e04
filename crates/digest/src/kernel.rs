//! The implementations of SHA-256 that a leaf hasher chooses from.

use crate::digest::Digest;
use crate::file::FileHasher;
#[cfg(target_arch = "x86_64")]
use crate::group;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512, ShaNi2, ShaNi4};

/// Most streams that any kernel hashes side by side.
pub(crate) const MAX_STREAMS: usize = 16;

/// One way to hash a few independent messages, known to run on this CPU.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kernel {
    /// The `sha2` crate: the SHA instructions of x86-64 or aarch64 where the CPU has them.
    Sha2,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "x86_64")]
    ShaNi2(ShaNi2),
    #[cfg(target_arch = "x86_64")]
    ShaNi4(ShaNi4),
}

impl Kernel {
    /// Every kernel that runs on this CPU.
    pub(crate) fn all_supported() -> Vec<Self> {
        let candidates = [
            Some(Self::Sha2),
            #[cfg(target_arch = "x86_64")]
            Avx2::detect().map(Self::Avx2),
            #[cfg(target_arch = "x86_64")]
            Avx512::detect().map(Self::Avx512),
            #[cfg(target_arch = "x86_64")]
            ShaNi2::detect().map(Self::ShaNi2),
            #[cfg(target_arch = "x86_64")]
            ShaNi4::detect().map(Self::ShaNi4),
        ];
        candidates.into_iter().flatten().collect()
    }

    /// The name that benchmarks and logs print.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sha2 => "sha2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "avx2-x8",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "avx512-x16",
            #[cfg(target_arch = "x86_64")]
            Self::ShaNi2(_) => "sha-ni-x2",
            #[cfg(target_arch = "x86_64")]
            Self::ShaNi4(_) => "sha-ni-x4",
        }
    }

    /// How many messages it hashes side by side.
    pub(crate) const fn streams(self) -> usize {
        match self {
            Self::Sha2 => 1,
            #[cfg(target_arch = "x86_64")]
            Self::ShaNi2(_) => 2,
            #[cfg(target_arch = "x86_64")]
            Self::ShaNi4(_) => 4,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => 8,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => 16,
        }
    }

    /// Hashes 1 to [`streams`](Self::streams) messages, all as long as the first but the last, which may be shorter.
    pub(crate) fn hash(self, messages: &[&[u8]], out: &mut Vec<Digest>) {
        match self {
            Self::Sha2 => out.extend(messages.iter().map(|message| {
                let mut hasher = FileHasher::new();
                hasher.update(message);
                hasher.finish()
            })),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(token) => group::hash(
                |states, blocks| token.compress(states, blocks),
                messages,
                out,
            ),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(token) => group::hash(
                |states, blocks| token.compress(states, blocks),
                messages,
                out,
            ),
            #[cfg(target_arch = "x86_64")]
            Self::ShaNi2(token) => group::hash(
                |states, blocks| token.compress(states, blocks),
                messages,
                out,
            ),
            #[cfg(target_arch = "x86_64")]
            Self::ShaNi4(token) => group::hash(
                |states, blocks| token.compress(states, blocks),
                messages,
                out,
            ),
        }
    }
}
