//! Fixed settings of the network interfaces of the current network namespace.
//!
//! A VM's guestd uses it on its own machine; the host uses it in the network namespace of a
//! container Space, which must not be able to change what it was given.

mod interface;
mod socket;

pub use interface::{Address, Interface, NetworkError, parse_address, set_up_loopback};
