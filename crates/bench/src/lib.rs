//! Benchmarks of Airlock: what to measure, in which order, the raw samples, and what is derived
//! from them.
//!
//! Raw samples are the truth. [`stats`] derives figures from them, [`result`] saves both, and
//! [`report`] renders from the saved file alone, so a report can always be made again and never
//! says more than the file holds.
//!
//! ```text
//! plan ─► schedule ─► run (drives a target) ─► samples ─► stats ─► result.json ─► report.md
//! ```

pub mod content;
pub mod environment;
pub mod output;
pub mod plan;
pub mod report;
pub mod result;
pub mod run;
pub mod samples;
pub mod schedule;
pub mod stats;
pub mod target;

pub use plan::{Plan, PlanError};
pub use run::{BenchError, Event, RunOptions, RunOutcome, run};
