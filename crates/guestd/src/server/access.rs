//! Who may call what.

use std::fmt;
use std::hint::black_box;
use std::sync::RwLock;

use airlock_wire::{AUTHORIZATION, ENV_AUTHORIZATION, Fault, FaultKind};
use http::HeaderMap;

/// A bearer token. Its text shows nowhere, not even in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Why a text is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Nothing but white space.
    #[error("the token is empty")]
    Empty,
    /// A header could not carry it.
    #[error("the token may only hold visible ASCII characters")]
    NotVisible,
}

impl Token {
    /// Takes `text` without white space around it.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(TokenError::Empty);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::NotVisible);
        }
        Ok(Self(text.to_owned()))
    }

    /// Compares in a time that does not tell how much of `offered` was right.
    fn accepts(&self, offered: &[u8]) -> bool {
        let token = self.0.as_bytes();
        if token.len() != offered.len() {
            return false;
        }
        let differing = token
            .iter()
            .zip(offered)
            .fold(0, |sum, (a, b)| black_box(sum | (a ^ b)));
        differing == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The rule in force.
#[derive(Debug)]
enum Mode {
    Open,
    AwaitInit,
    Token(Token),
}

/// Decides over every call by its path and headers.
#[derive(Debug)]
pub struct Access(RwLock<Mode>);

/// Calls allowed until the first token arrives.
const BEFORE_INIT: &[&str] = &[
    "/cua.env.v1.SystemService/GetCapabilities",
    "/cua.env.v1.SystemService/Health",
    "/cua.env.v1.SystemService/Init",
];

impl Access {
    /// Everyone may call everything.
    pub fn open() -> Self {
        Self(RwLock::new(Mode::Open))
    }

    /// Little is allowed until [`Access::set_token`].
    pub fn await_init() -> Self {
        Self(RwLock::new(Mode::AwaitInit))
    }

    /// Every call needs the token.
    pub fn token(token: Token) -> Self {
        Self(RwLock::new(Mode::Token(token)))
    }

    /// Asks for `token` from the next call on; says whether that changes anything.
    pub fn set_token(&self, token: Token) -> bool {
        let mut mode = self
            .0
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let changed = !matches!(&*mode, Mode::Token(old) if *old == token);
        *mode = Mode::Token(token);
        changed
    }

    /// Refuses a call that may not be made.
    pub fn check(&self, path: &str, headers: &HeaderMap) -> Result<(), Fault> {
        let mode = self
            .0
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let refusal = match &*mode {
            Mode::Open => return Ok(()),
            Mode::AwaitInit if BEFORE_INIT.contains(&path) => return Ok(()),
            Mode::AwaitInit => "this Space waits for Init",
            Mode::Token(token) => match offered(headers) {
                Offer::Some(values) if values.iter().any(|value| token.accepts(value)) => {
                    return Ok(());
                }
                Offer::Some(_) => "the token is wrong",
                Offer::None => "a bearer token is needed",
            },
        };
        Err(Fault::new(FaultKind::Unauthenticated, refusal))
    }
}

/// What a call brought along.
enum Offer<'a> {
    None,
    Some(Vec<&'a [u8]>),
}

fn offered(headers: &HeaderMap) -> Offer<'_> {
    let values: Vec<_> = [AUTHORIZATION, ENV_AUTHORIZATION]
        .iter()
        .flat_map(|key| headers.get_all(*key))
        .filter_map(|value| bearer(value.as_bytes()))
        .collect();
    if values.is_empty() {
        Offer::None
    } else {
        Offer::Some(values)
    }
}

/// The token behind the scheme's name, which is case-insensitive.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXEC: &str = "/cua.env.v1.ProcessService/StartProcess";

    fn headers(key: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(key, value.parse().unwrap());
        headers
    }

    #[test]
    fn a_token_is_taken_from_either_header() {
        let access = Access::token(Token::new("s3cret\n").unwrap());
        for key in [AUTHORIZATION, ENV_AUTHORIZATION] {
            assert!(access.check(EXEC, &headers(key, "Bearer s3cret")).is_ok());
            assert!(access.check(EXEC, &headers(key, "bearer s3cret")).is_ok());
            for wrong in [
                "Bearer s3cre",
                "Bearer s3cret2",
                "Bearer ",
                "s3cret",
                "Basic s3cret",
            ] {
                let fault = access.check(EXEC, &headers(key, wrong)).unwrap_err();
                assert_eq!(fault.kind, FaultKind::Unauthenticated, "{wrong}");
            }
        }
        assert!(access.check(EXEC, &HeaderMap::new()).is_err());
        assert!(access.check(BEFORE_INIT[0], &HeaderMap::new()).is_err());
    }

    #[test]
    fn before_init_three_calls_are_open_and_afterwards_none() {
        let access = Access::await_init();
        for path in BEFORE_INIT {
            assert!(access.check(path, &HeaderMap::new()).is_ok());
        }
        assert!(access.check(EXEC, &HeaderMap::new()).is_err());
        assert!(access.set_token(Token::new("a").unwrap()));
        assert!(!access.set_token(Token::new("a").unwrap()));
        assert!(access.check(BEFORE_INIT[2], &HeaderMap::new()).is_err());
        assert!(
            access
                .check(EXEC, &headers(AUTHORIZATION, "Bearer a"))
                .is_ok()
        );
    }

    #[test]
    fn tokens_are_visible_ascii_and_never_shown() {
        assert_eq!(Token::new(" \n"), Err(TokenError::Empty));
        assert_eq!(Token::new("a b"), Err(TokenError::NotVisible));
        assert_eq!(format!("{:?}", Token::new("abc").unwrap()), "Token(…)");
    }
}
