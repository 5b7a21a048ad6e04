//! Ids, sizes, specs, states and paths of Airlock: values only, no I/O and no async runtime.
//!
//! Every other crate may depend on this one, so it stays small: a type lives here when two
//! crates on different sides of a boundary (host and Space, client and keeper) must agree on it.

pub mod boot;
pub mod geometry;
pub mod home;
pub mod name;
pub mod size;
pub mod space;

pub use boot::{BootConfig, NetConfig};
pub use geometry::LaneGeometry;
pub use home::{HomePaths, SpacePaths};
pub use name::{ImageName, NameError, SpaceName};
pub use space::{Accel, Kind, Network, Route, Runtime, SpaceSpec, SpaceState};
