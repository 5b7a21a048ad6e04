//! The kernels that need instructions beyond the x86-64 baseline: the only unsafe code here.
//!
//! Each kernel is a safe function with target features. Calling one is unsafe where the CPU may
//! lack them, so each gets a token type that only detection can make, and the call goes through
//! the token.

#![expect(
    unsafe_code,
    reason = "calling a function with target features that were detected at run time"
)]

mod avx2;
mod avx512;
mod sha_ni;

use crate::sha256::{Block, State};

macro_rules! token {
    ($(#[$doc:meta])* $token:ident, $streams:literal, $($feature:tt)|+, $compress:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $token(());

        impl $token {
            /// The kernel, where this CPU has what it needs.
            pub(crate) fn detect() -> Option<Self> {
                ($(is_x86_feature_detected!($feature))&&+).then_some(Self(()))
            }

            /// Hashes blocks into one state per stream; all slices have one length.
            pub(crate) fn compress(self, states: &mut [State; $streams], blocks: [&[Block]; $streams]) {
                // SAFETY: `detect` is the only way to a token, and it saw every target feature of the function.
                unsafe { $compress(states, blocks) }
            }
        }
    };
}

token!(
    /// Eight streams in 256-bit vectors.
    Avx2, 8, "avx2", avx2::compress
);
token!(
    /// Sixteen streams in 512-bit vectors.
    Avx512, 16, "avx512f" | "avx512bw", avx512::compress
);
token!(
    /// Two streams that share the SHA unit, so that each hides the latency of the other.
    ShaNi2, 2, "sha" | "sse4.1" | "ssse3", sha_ni::compress::<2>
);
token!(
    /// Four streams that share the SHA unit.
    ShaNi4, 4, "sha" | "sse4.1" | "ssse3", sha_ni::compress::<4>
);
