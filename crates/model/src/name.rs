//! Names of Spaces and images.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name, in bytes. It is also a legal host name label.
pub const MAX_NAME_BYTES: usize = 63;

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("the name is empty")]
    Empty,
    /// The text is longer than [`MAX_NAME_BYTES`].
    #[error("the name has {0} bytes, at most {MAX_NAME_BYTES} are allowed")]
    TooLong(usize),
    /// A character is not allowed, or not allowed in first place.
    #[error(
        "the name {name:?} has {found:?} at position {position}; \
         allowed are a-z, 0-9 and (not in first place) -"
    )]
    BadCharacter {
        /// The whole text.
        name: String,
        /// The offending character.
        found: char,
        /// Its place, counted in characters from 0.
        position: usize,
    },
}

fn check(text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > MAX_NAME_BYTES {
        return Err(NameError::TooLong(text.len()));
    }
    for (position, found) in text.chars().enumerate() {
        let ok =
            found.is_ascii_lowercase() || found.is_ascii_digit() || (found == '-' && position > 0);
        if !ok {
            return Err(NameError::BadCharacter {
                name: text.to_owned(),
                found,
                position,
            });
        }
    }
    Ok(())
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks `text` and makes it a name.
            pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                check(&text)?;
                Ok(Self(text))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type! {
    /// The name of a Space: `[a-z0-9][a-z0-9-]{0,62}`. It is also the Space's host name.
    SpaceName
}
name_type! {
    /// The name of an image, by the same rule as [`SpaceName`].
    ImageName
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_the_grammar_allows() {
        for text in ["a", "0", "a-b", "web-1", &"x".repeat(63)] {
            assert_eq!(SpaceName::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn refuses_everything_else() {
        assert_eq!(SpaceName::new(""), Err(NameError::Empty));
        assert_eq!(SpaceName::new("x".repeat(64)), Err(NameError::TooLong(64)));
        for text in [
            "-a", "A", "a_b", "a.b", "a b", "a/b", "..", "ä", "a\n", "a\0",
        ] {
            assert!(
                matches!(SpaceName::new(text), Err(NameError::BadCharacter { .. })),
                "{text:?}"
            );
        }
    }

    #[test]
    fn serde_checks_too() {
        assert!(serde_json::from_str::<SpaceName>("\"../x\"").is_err());
    }
}
