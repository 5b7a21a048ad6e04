//! Which kinds of Space one run measures.

use airlock_model::Kind;
use serde::{Deserialize, Serialize};

/// The kinds of one run, in the order of the columns; never empty, none twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Kinds(Vec<Kind>);

impl Default for Kinds {
    /// One Space, of the kind that Airlock chooses.
    fn default() -> Self {
        Self(vec![Kind::Auto])
    }
}

/// Why some kinds make no run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KindsError {
    /// Its results would overwrite each other.
    #[error("kind {kind} is there twice")]
    Twice {
        /// The kind.
        kind: Kind,
    },
    /// What is chosen may be one of the others, and the comparison one of a thing with itself.
    #[error("kind auto cannot be compared with others; name the kinds to compare")]
    AutoAmongOthers,
}

impl Kinds {
    /// These kinds; [`Kinds::default`] when there is none.
    pub fn new(kinds: Vec<Kind>) -> Result<Self, KindsError> {
        if kinds.is_empty() {
            return Ok(Self::default());
        }
        for (index, kind) in kinds.iter().enumerate() {
            if kinds[..index].contains(kind) {
                return Err(KindsError::Twice { kind: *kind });
            }
        }
        if kinds.len() > 1 && kinds.contains(&Kind::Auto) {
            return Err(KindsError::AutoAmongOthers);
        }
        Ok(Self(kinds))
    }

    /// The kinds in order.
    pub fn as_slice(&self) -> &[Kind] {
        &self.0
    }

    /// Whether there is something to compare.
    pub fn is_comparison(&self) -> bool {
        self.0.len() > 1
    }

    /// The flags that ask for them, each with a space in front; empty when nothing need be asked.
    pub fn flags(&self) -> String {
        if *self == Self::default() {
            return String::new();
        }
        let flag = |kind: &Kind| [" --kind ", kind.as_str()];
        self.0.iter().flat_map(flag).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_asked_is_one_kind_that_airlock_chooses() {
        let kinds = Kinds::new(vec![]).unwrap();
        assert_eq!(kinds.as_slice(), [Kind::Auto]);
        assert!(!kinds.is_comparison());
        assert_eq!(kinds.flags(), "");
        assert_eq!(Kinds::new(vec![Kind::Auto]).unwrap(), kinds);
    }

    #[test]
    fn several_keep_their_order() {
        let kinds = Kinds::new(vec![Kind::Vm, Kind::Container]).unwrap();
        assert!(kinds.is_comparison());
        assert_eq!(kinds.flags(), " --kind vm --kind container");
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        let twice = Kinds::new(vec![Kind::Vm, Kind::Container, Kind::Vm]).unwrap_err();
        assert_eq!(twice.to_string(), "kind vm is there twice");
        let auto = Kinds::new(vec![Kind::Auto, Kind::Vm]).unwrap_err();
        assert_eq!(auto, KindsError::AutoAmongOthers);
    }
}
