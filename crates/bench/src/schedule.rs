//! The order of the measurements.
//!
//! Latencies come first, each metric in one serial run after its warm-ups. Files follow in the
//! order of the plan; within one size uploads and downloads alternate, so that a machine that
//! slows down half-way slows both alike.

use crate::plan::{FilePlan, Plan};
use crate::samples::{Direction, Latency};

/// Whether a step's time is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Run, not recorded.
    WarmUp,
    /// Recorded under this number, counted from 0.
    Measured(u32),
}

/// One thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Time one round trip.
    Latency {
        /// Which.
        latency: Latency,
        /// Whether it counts.
        phase: Phase,
    },
    /// Make the content of a size on the host.
    Prepare(FilePlan),
    /// Time one transfer.
    Transfer {
        /// Size of the file.
        size_bytes: u64,
        /// Which way.
        direction: Direction,
        /// Whether it counts.
        phase: Phase,
    },
    /// Compare what came back with the content, byte for byte.
    Compare {
        /// Size of the file.
        size_bytes: u64,
    },
    /// Remove a size's file from the Space and the host.
    CleanUp {
        /// Size of the file.
        size_bytes: u64,
    },
}

/// The steps of the plan in order.
pub fn steps(plan: &Plan) -> Vec<Step> {
    let mut steps = Vec::new();
    for latency in Latency::ALL {
        let warm_ups = (0..plan.latency_warm_ups).map(|_| Phase::WarmUp);
        let measured = (0..plan.latency_iterations).map(Phase::Measured);
        steps.extend(
            warm_ups
                .chain(measured)
                .map(|phase| Step::Latency { latency, phase }),
        );
    }
    for file in plan.files.as_slice() {
        let size_bytes = file.size_bytes();
        steps.push(Step::Prepare(*file));
        let round = |phase| {
            [Direction::Upload, Direction::Download].map(|direction| Step::Transfer {
                size_bytes,
                direction,
                phase,
            })
        };
        steps.extend(round(Phase::WarmUp));
        steps.push(Step::Compare { size_bytes });
        steps.extend((0..file.iterations).flat_map(|i| round(Phase::Measured(i))));
        steps.push(Step::CleanUp { size_bytes });
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(files: &str, latency_iterations: u32) -> Plan {
        Plan {
            latency_iterations,
            latency_warm_ups: 2,
            files: files.parse().unwrap(),
        }
    }

    #[test]
    fn latencies_are_serial_with_warm_ups_in_front() {
        let steps = steps(&plan("1:1", 3));
        let rpc: Vec<_> = steps
            .iter()
            .take(5)
            .map(|step| match step {
                Step::Latency {
                    latency: Latency::RpcNoop,
                    phase,
                } => *phase,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            rpc,
            [
                Phase::WarmUp,
                Phase::WarmUp,
                Phase::Measured(0),
                Phase::Measured(1),
                Phase::Measured(2)
            ]
        );
    }

    #[test]
    fn uploads_and_downloads_alternate_and_are_compared_once() {
        let steps = steps(&plan("4:3", 1));
        let files: Vec<_> = steps
            .iter()
            .filter(|step| !matches!(step, Step::Latency { .. }))
            .map(|step| match step {
                Step::Prepare(_) => "prepare".to_owned(),
                Step::Compare { .. } => "compare".to_owned(),
                Step::CleanUp { .. } => "clean".to_owned(),
                Step::Transfer {
                    direction, phase, ..
                } => {
                    let phase = match phase {
                        Phase::WarmUp => "w".to_owned(),
                        Phase::Measured(i) => i.to_string(),
                    };
                    format!("{}{phase}", &direction.as_str()[..1])
                }
                Step::Latency { .. } => unreachable!("filtered above"),
            })
            .collect();
        assert_eq!(
            files,
            [
                "prepare", "uw", "dw", "compare", "u0", "d0", "u1", "d1", "u2", "d2", "clean"
            ]
        );
    }

    #[test]
    fn the_default_plan_measures_what_is_published() {
        let steps = steps(&Plan::default());
        let measured = |wanted: Latency| {
            steps
                .iter()
                .filter(|step| {
                    matches!(step, Step::Latency { latency, phase: Phase::Measured(_) } if *latency == wanted)
                })
                .count()
        };
        for latency in Latency::ALL {
            assert_eq!(measured(latency), 300);
        }
        let transfers = steps
            .iter()
            .filter(|step| {
                matches!(
                    step,
                    Step::Transfer {
                        phase: Phase::Measured(_),
                        ..
                    }
                )
            })
            .count();
        assert_eq!(transfers, 2 * (20 + 20 + 10 + 10 + 5));
    }
}
