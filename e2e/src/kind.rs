//! The two kinds of Spaces, and tests that run on both from one definition.
//!
//! A test is a function of a [`Kind`]. [`on_both_kinds!`](crate::on_both_kinds) makes two tests of
//! it, whose names say what they need, and `cargo xtask test --kinds` chooses by these names:
//!
//! | name | runs with |
//! |---|---|
//! | `x::container` | every `cargo xtask test` and `ci`, and `--kinds container` or `both` |
//! | `x::vm` | the same, and `--kinds vm`: the small set that proves each part on QEMU |
//! | `x::slow::vm` | `--kinds vm` or `both` |
//! | `vm_only::x` | as `x::vm`: what only a machine has |
//! | `container_only::x` | as `x::container`: what only a container has |

/// What a Space is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Processes behind a wall in the host's kernel.
    Container,
    /// A machine with a kernel of its own.
    Vm,
}

impl Kind {
    /// What `--kind` and `spaces info` call it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Vm => "vm",
        }
    }
}

/// Makes `x::container` and `x::vm` of each function `x` of a [`Kind`]; those named
/// after `slow_on_vm` become `x::container` and `x::slow::vm`.
#[macro_export]
macro_rules! on_both_kinds {
    (every_day: $($daily:ident),* ; slow_on_vm: $($slow:ident),* $(;)?) => {
        $(mod $daily {
            #[test]
            fn container() {
                super::$daily(airlock_e2e::Kind::Container);
            }

            #[test]
            fn vm() {
                super::$daily(airlock_e2e::Kind::Vm);
            }
        })*
        $(mod $slow {
            #[test]
            fn container() {
                super::$slow(airlock_e2e::Kind::Container);
            }

            mod slow {
                #[test]
                fn vm() {
                    super::super::$slow(airlock_e2e::Kind::Vm);
                }
            }
        })*
    };
    (#[$attribute:meta] $($test:ident),* $(,)? ;) => {
        $(mod $test {
            #[test]
            #[$attribute]
            fn container() {
                super::$test(airlock_e2e::Kind::Container);
            }

            mod slow {
                #[test]
                #[$attribute]
                fn vm() {
                    super::super::$test(airlock_e2e::Kind::Vm);
                }
            }
        })*
    };
}
