//! Moving one file into or out of a Space, verified leaf by leaf.
//!
//! The protocol is described in `docs/lane.md`. The caller brings a [`Connection`] to guestd and,
//! where the keeper leased slots, a [`LaneSession`]; what cannot go through the lane goes over
//! the connection, and the [`Receipt`] says which way it was and why.

mod connection;
mod download;
mod error;
mod lane;
mod progress;
mod receipt;
mod source;
mod target;
mod umask;
mod upload;

pub use connection::{AddToken, ConnectError, Connection};
pub use download::{DownloadOptions, Downloaded, download};
pub use error::{DownloadError, ErrorKind, Misconduct, UploadError};
pub use lane::{LaneLease, LaneSession, LaneUnusable};
pub use progress::{OnProgress, Progress};
pub use receipt::Receipt;
pub use source::Source;
pub use target::Target;
pub use upload::{UploadOptions, upload};
