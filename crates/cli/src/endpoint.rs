//! What the two sides of `airlock cp` mean. Pure: asks its caller whether a local file exists.
//!
//! | text | meaning |
//! |---|---|
//! | `-` | standard input or output |
//! | `NAME:PATH` | a path in the Space `NAME`; relative ones start at the home folder of its user |
//! | a `/` before the first `:`, or no `:` | local, as written |
//! | what stands before the `:` is no Space name (`C:\x`, `My file: 2`) | local, as written |
//! | `NAME:PATH`, and a local file has this very name | an error that says how to write either |
//!
//! Names are bytes all the way; nothing here needs UTF-8.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use airlock_model::{NameError, SpaceName};

/// One side, understood by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Side {
    /// Standard input or output.
    Stdio,
    /// A path on this machine.
    Local(PathBuf),
    /// A path in a Space.
    Space(SpacePath),
}

/// A path in a Space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpacePath {
    /// The Space.
    pub(crate) name: SpaceName,
    /// The path as bytes. Relative: from the home folder of the Space's user. Never empty.
    pub(crate) path: OsString,
}

/// A local end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LocalEnd {
    /// Standard input or output.
    Stdio,
    /// A path on this machine.
    Path(PathBuf),
}

/// What a pair of arguments asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Copy {
    /// Into a Space.
    Upload {
        /// What is read.
        source: LocalEnd,
        /// Where it goes.
        target: SpacePath,
    },
    /// Out of a Space.
    Download {
        /// What is read.
        source: SpacePath,
        /// Where it goes.
        target: LocalEnd,
    },
}

/// Why a pair of arguments asks for nothing that can be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EndpointError {
    /// A side is an empty text.
    #[error("{side} is empty")]
    Empty {
        /// Which side.
        side: &'static str,
    },
    /// It may mean a Space or a local file.
    #[error("{text:?} can mean the local file of that name and a path in the Space {name}")]
    Ambiguous {
        /// The argument.
        text: OsString,
        /// The Space it would mean.
        name: SpaceName,
        /// The part after the colon.
        path: OsString,
    },
    /// `NAME:~other/…`.
    #[error("{text:?}: only ~ and ~/… are understood, not the homes of other users")]
    OtherHome {
        /// The argument.
        text: OsString,
    },
    /// No side is in a Space.
    #[error("neither {source_text:?} nor {target_text:?} is in a Space")]
    BothLocal {
        /// The first argument.
        source_text: OsString,
        /// The second argument.
        target_text: OsString,
        /// An argument that looks like `NAME:PATH`, and why its NAME is none.
        almost: Option<(OsString, NameError)>,
    },
    /// Both sides are in Spaces.
    #[error("both sides are in a Space, and one must be local")]
    BothSpaces {
        /// The first side.
        source_side: SpacePath,
        /// The second side.
        target_side: SpacePath,
    },
}

impl EndpointError {
    /// What to write instead.
    pub(crate) fn hints(&self) -> Vec<String> {
        let show = |text: &OsStr| text.to_string_lossy().into_owned();
        match self {
            Self::Empty { .. } => vec!["write . for the folder you are in".into()],
            Self::Ambiguous { text, name, path } => vec![
                format!("write ./{} for the local file", show(text)),
                format!("write {name}:./{} for the path in the Space", show(path)),
            ],
            Self::OtherHome { .. } => {
                vec!["write the whole path, or NAME:./~other for a file of that name".into()]
            }
            Self::BothLocal { almost, .. } => {
                let mut hints = vec!["write NAME:/path for the side in the Space".into()];
                if let Some((text, error)) = almost {
                    hints.push(format!(
                        "{:?} is taken for a local file: {error}",
                        show(text)
                    ));
                }
                hints
            }
            Self::BothSpaces {
                source_side,
                target_side,
            } => vec![format!(
                "go by a pipe: airlock cp {}:{} - | airlock cp - {}:{}",
                source_side.name,
                show(&source_side.path),
                target_side.name,
                show(&target_side.path)
            )],
        }
    }
}

/// Understands both arguments together.
pub(crate) fn parse(
    source: &OsStr,
    target: &OsStr,
    exists: impl Fn(&Path) -> bool,
) -> Result<Copy, EndpointError> {
    let source_side = parse_side(source, "the source", &exists)?;
    let target_side = parse_side(target, "the destination", &exists)?;
    match (source_side, target_side) {
        (Side::Space(source_side), Side::Space(target_side)) => Err(EndpointError::BothSpaces {
            source_side,
            target_side,
        }),
        (Side::Stdio, Side::Space(target)) => Ok(Copy::Upload {
            source: LocalEnd::Stdio,
            target,
        }),
        (Side::Local(path), Side::Space(target)) => Ok(Copy::Upload {
            source: LocalEnd::Path(path),
            target,
        }),
        (Side::Space(source), Side::Stdio) => Ok(Copy::Download {
            source,
            target: LocalEnd::Stdio,
        }),
        (Side::Space(source), Side::Local(path)) => Ok(Copy::Download {
            source,
            target: LocalEnd::Path(path),
        }),
        (Side::Stdio | Side::Local(_), Side::Stdio | Side::Local(_)) => {
            Err(EndpointError::BothLocal {
                source_text: source.to_owned(),
                target_text: target.to_owned(),
                almost: [source, target].into_iter().find_map(almost_a_space),
            })
        }
    }
}

fn parse_side(
    text: &OsStr,
    side: &'static str,
    exists: &impl Fn(&Path) -> bool,
) -> Result<Side, EndpointError> {
    if text.is_empty() {
        return Err(EndpointError::Empty { side });
    }
    if text == "-" {
        return Ok(Side::Stdio);
    }
    let local = || Ok(Side::Local(PathBuf::from(text)));
    let Some((before, after)) = split_at_colon(text) else {
        return local();
    };
    let Some(Ok(name)) = before.to_str().map(SpaceName::new) else {
        return local();
    };
    if exists(Path::new(text)) {
        return Err(EndpointError::Ambiguous {
            text: text.to_owned(),
            name,
            path: after.into(),
        });
    }
    match from_home(after.as_bytes()) {
        Some(path) => Ok(Side::Space(SpacePath {
            name,
            path: OsString::from_vec(path),
        })),
        None => Err(EndpointError::OtherHome {
            text: text.to_owned(),
        }),
    }
}

/// The text around the first colon, unless a slash stands before it.
fn split_at_colon(text: &OsStr) -> Option<(&OsStr, &OsStr)> {
    let bytes = text.as_bytes();
    let colon = bytes.iter().position(|&byte| byte == b':')?;
    let (before, after) = (&bytes[..colon], &bytes[colon + 1..]);
    (!before.contains(&b'/')).then(|| (OsStr::from_bytes(before), OsStr::from_bytes(after)))
}

/// Turns `~` and `~/x` into the relative path that means the same; `None` for `~other`.
fn from_home(path: &[u8]) -> Option<Vec<u8>> {
    let path = match path.strip_prefix(b"~") {
        None => path,
        Some(b"") => b".",
        Some(rest) => {
            let inside = rest.strip_prefix(b"/")?;
            let start = inside
                .iter()
                .position(|&byte| byte != b'/')
                .unwrap_or(inside.len());
            &inside[start..]
        }
    };
    Some(if path.is_empty() {
        b".".to_vec()
    } else {
        path.to_vec()
    })
}

/// An argument with a colon whose first part is no name for a small reason: worth a hint.
fn almost_a_space(text: &OsStr) -> Option<(OsString, NameError)> {
    let (before, _) = split_at_colon(text)?;
    let error = SpaceName::new(before.to_string_lossy()).err()?;
    Some((text.to_owned(), error))
}

#[cfg(test)]
mod tests;
