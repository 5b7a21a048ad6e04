//! Benchmarks of Airlock: what to measure, in which order, the raw samples, and what is derived
//! from them.
//!
//! Raw samples are the truth. [`stats`] derives figures from them, [`result`] saves both, and
//! [`report`] renders from the saved file alone, so a report can always be made again and never
//! says more than the file holds.
//!
//! Several kinds of Space are measured in turn within one run; each keeps a result of its own, and
//! [`report::compare`] puts them side by side.
//!
//! ```text
//! plan ─► schedule ─► run (drives a target) ─► samples ─► stats ─► result.json ─► report.md
//! ```

pub mod content;
pub mod environment;
pub mod kinds;
pub mod output;
pub mod plan;
pub mod report;
pub mod result;
pub mod rollout;
pub mod run;
pub mod samples;
pub mod schedule;
#[cfg(test)]
mod schema_check;
pub mod stats;
pub mod target;

pub use kinds::{Kinds, KindsError};
pub use plan::{Plan, PlanError};
pub use run::{BenchError, Event, RunOptions, RunOutcome, run};
