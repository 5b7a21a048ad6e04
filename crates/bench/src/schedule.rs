//! The order of the measurements.
//!
//! Latencies come first, each metric in one serial run after its warm-ups. Files follow in the
//! order of the plan; within one size uploads and downloads alternate, so that a machine that
//! slows down half-way slows both alike.
//!
//! Several Spaces take turns for the same reason: metric by metric for latencies, whose round
//! trips stay serial, and round by round for files.

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
    /// Remove a size's file from the Space, and what came back from the host.
    CleanUp {
        /// Size of the file.
        size_bytes: u64,
    },
    /// Remove the content of a size from the host.
    Discard {
        /// Size of the file.
        size_bytes: u64,
    },
}

/// One step and the Space it is done with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Which Space, counted from 0. Steps that concern the host alone are all of the first.
    pub space: usize,
    /// What to do.
    pub step: Step,
}

/// The steps of the plan in order, on so many Spaces in turn.
pub fn turns(plan: &Plan, spaces: usize) -> Vec<Turn> {
    let mut turns = Vec::new();
    let each = |turns: &mut Vec<Turn>, steps: &[Step]| {
        for space in 0..spaces {
            turns.extend(steps.iter().map(|&step| Turn { space, step }));
        }
    };
    for latency in Latency::ALL {
        let warm_ups = (0..plan.latency_warm_ups).map(|_| Phase::WarmUp);
        let measured = (0..plan.latency_iterations).map(Phase::Measured);
        let serial: Vec<Step> = warm_ups
            .chain(measured)
            .map(|phase| Step::Latency { latency, phase })
            .collect();
        each(&mut turns, &serial);
    }
    let on_host = |step| Turn { space: 0, step };
    for file in plan.files.as_slice() {
        let size_bytes = file.size_bytes();
        let round = |phase| {
            [Direction::Upload, Direction::Download].map(|direction| Step::Transfer {
                size_bytes,
                direction,
                phase,
            })
        };
        turns.push(on_host(Step::Prepare(*file)));
        let [up, down] = round(Phase::WarmUp);
        each(&mut turns, &[up, down, Step::Compare { size_bytes }]);
        for iteration in 0..file.iterations {
            each(&mut turns, &round(Phase::Measured(iteration)));
        }
        each(&mut turns, &[Step::CleanUp { size_bytes }]);
        turns.push(on_host(Step::Discard { size_bytes }));
    }
    turns
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

    fn steps(plan: &Plan) -> Vec<Step> {
        turns(plan, 1).iter().map(|turn| turn.step).collect()
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

    /// One word for each step with files, with the Space's number behind it.
    fn files(plan: &Plan, spaces: usize) -> Vec<String> {
        let word = |turn: &Turn| {
            let word = match turn.step {
                Step::Latency { .. } => return None,
                Step::Prepare(_) => "prepare".to_owned(),
                Step::Compare { .. } => "compare".to_owned(),
                Step::CleanUp { .. } => "clean".to_owned(),
                Step::Discard { .. } => "discard".to_owned(),
                Step::Transfer {
                    direction, phase, ..
                } => {
                    let phase = match phase {
                        Phase::WarmUp => "w".to_owned(),
                        Phase::Measured(i) => i.to_string(),
                    };
                    format!("{}{phase}", &direction.as_str()[..1])
                }
            };
            Some(format!("{word}.{}", turn.space))
        };
        turns(plan, spaces).iter().filter_map(word).collect()
    }

    #[test]
    fn uploads_and_downloads_alternate_and_are_compared_once() {
        assert_eq!(
            files(&plan("4:3", 1), 1).join(" ").replace(".0", ""),
            "prepare uw dw compare u0 d0 u1 d1 u2 d2 clean discard"
        );
    }

    #[test]
    fn several_spaces_take_turns_in_every_round() {
        assert_eq!(
            files(&plan("4:2", 1), 2).join(" "),
            "prepare.0 uw.0 dw.0 compare.0 uw.1 dw.1 compare.1 \
             u0.0 d0.0 u0.1 d0.1 u1.0 d1.0 u1.1 d1.1 clean.0 clean.1 discard.0"
        );
        let latencies: Vec<usize> = turns(&plan("4:2", 1), 2)
            .iter()
            .filter(|turn| matches!(turn.step, Step::Latency { .. }))
            .map(|turn| turn.space)
            .collect();
        let one_metric = [0, 0, 0, 1, 1, 1];
        assert_eq!(latencies, one_metric.repeat(Latency::ALL.len()));
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
