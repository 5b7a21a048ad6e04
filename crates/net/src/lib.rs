//! The data network of a Space: passt behind a wall. Knows neither QEMU nor containers.
//!
//! [`passt`] turns a Space's packets into ordinary sockets of an unprivileged host process;
//! [`wall`] keeps those packets off the host's own loopback.

pub mod passt;
mod tap;
pub mod wall;
