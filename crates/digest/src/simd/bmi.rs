//! The plain integer code, compiled for BMI1 and BMI2.
//!
//! Under emulation a rotation that sets no flags (`rorx`) costs one operation, one that sets them several.

use crate::sha256::{self, Block, State};

/// Hashes `blocks[0]` into `states[0]`.
#[target_feature(enable = "bmi1,bmi2")]
pub(super) fn compress(states: &mut [State; 1], blocks: [&[Block]; 1]) {
    sha256::compress(&mut states[0], blocks[0]);
}
