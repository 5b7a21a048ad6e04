//! The Airlock SDK: make Spaces, move files in and out, run commands.
//!
//! [`Airlock`] is the entry point. It needs no daemon; each running Space has a keeper process of
//! its own, which is the `airlock` program (beside this program, in `PATH`, or named by
//! `AIRLOCK_KEEPER`).
//!
//! ```no_run
//! # async fn run() -> Result<(), airlock::Error> {
//! use airlock::{Airlock, CancellationToken, ImageName, SpaceSpec, Target};
//!
//! let airlock = Airlock::open()?;
//! let spec = SpaceSpec::new(airlock.free_name()?, ImageName::new("tiny")?);
//! let never = CancellationToken::new();
//! let space = airlock.create(spec, |_event| {}, &never).await?;
//!
//! // Bytes in, a command on them, the result out; every leaf verified on the way.
//! space.upload(b"hello\n".to_vec(), "/tmp/in").run().await?;
//! let output = space.exec("wc").args(["-c", "/tmp/in"]).output().await?;
//! assert!(output.end.is_success());
//! let copy = space.download_bytes("/tmp/in", 1024).await?;
//! assert_eq!(copy, b"hello\n");
//!
//! airlock.delete(space.name()).await?;
//! # Ok(())
//! # }
//! ```

mod airlock;
mod connect;
mod error;
mod exec;
mod guest_path;
mod space;
pub mod transfer;

pub use airlock_engine::doctor::{DoctorReport, Finding, Verdict};
pub use airlock_engine::{BUILD, ErrorKind, Event, SpaceInfo, image, internal_main};
pub use airlock_model::{
    Accel, HomePaths, ImageName, Kind, NameError, Network, Route, Runtime, SpaceName, SpaceSpec,
    SpaceState,
};
pub use tokio_util::sync::CancellationToken;

pub use crate::airlock::Airlock;
pub use error::Error;
pub use exec::{Exec, ExecEnd, ExecError, ExecEvent, ExecOutput, ExecStream};
pub use guest_path::GuestPath;
pub use space::{Download, Health, Measured, Metrics, Space, Upload};
pub use transfer::{Progress, Receipt, Source, Target};
