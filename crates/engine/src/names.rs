//! Names for Spaces that were not given one.

use airlock_model::{HomePaths, SpaceName};

use crate::EngineError;

const FIRST: &[&str] = &[
    "amber", "brisk", "calm", "clear", "crisp", "deft", "eager", "early", "fair", "fleet", "fresh",
    "keen", "light", "lucid", "mild", "neat", "noble", "plain", "quick", "quiet", "rapid", "ready",
    "sharp", "solid", "steady", "still", "sunny", "swift", "tidy", "vivid", "warm", "wise",
];
const SECOND: &[&str] = &[
    "anchor", "arch", "basin", "beacon", "bridge", "canal", "cedar", "cliff", "cove", "creek",
    "delta", "dock", "field", "fjord", "gate", "grove", "harbor", "haven", "hill", "inlet", "isle",
    "lagoon", "lock", "meadow", "mesa", "pier", "quay", "reef", "ridge", "river", "shore", "vale",
];

/// A name that no Space has.
pub(crate) fn free(home: &HomePaths) -> Result<SpaceName, EngineError> {
    loop {
        let mut bytes = [0u8; 4];
        getrandom::fill(&mut bytes).map_err(|error| EngineError::File {
            what: "draw random bytes for a name in",
            path: home.spaces(),
            source: error.into(),
        })?;
        let first = FIRST[usize::from(bytes[0]) % FIRST.len()];
        let second = SECOND[usize::from(bytes[1]) % SECOND.len()];
        let name = format!("{first}-{second}-{:02x}{:02x}", bytes[2], bytes[3]);
        // The words are all of the alphabet that names allow.
        if let Ok(name) = SpaceName::new(name)
            && !home.space(&name).dir().exists()
        {
            return Ok(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_words_is_a_name() {
        for first in FIRST {
            for second in SECOND {
                SpaceName::new(format!("{first}-{second}-ffff")).unwrap();
            }
        }
    }
}
