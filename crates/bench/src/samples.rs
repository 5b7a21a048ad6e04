//! Raw measurements, one row each, and their CSV form.
//!
//! `samples.csv` has the columns `metric,size_bytes,direction,route,iteration,ms`; `size_bytes`,
//! `direction` and `route` are empty for latency metrics.

use std::fmt::Write as _;

use airlock_model::Route;
use serde::{Deserialize, Serialize};

/// What was timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// A call that does nothing in the Space.
    RpcNoop,
    /// Running `true`, from request to exit code.
    ExecTrue,
    /// Running `sh -c true`.
    ExecShTrue,
    /// One file, from the call to the receipt.
    Transfer,
}

impl Metric {
    /// The latency metrics, in the order in which they are measured.
    pub const LATENCIES: [Self; 3] = [Self::RpcNoop, Self::ExecTrue, Self::ExecShTrue];

    /// The metric's word in CSV and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RpcNoop => "rpc_noop",
            Self::ExecTrue => "exec_true",
            Self::ExecShTrue => "exec_sh_true",
            Self::Transfer => "transfer",
        }
    }
}

/// Which way a file went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Into the Space.
    Upload,
    /// Out of the Space.
    Download,
}

impl Direction {
    /// The direction's word in CSV and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Download => "download",
        }
    }
}

/// What a transfer sample has beyond its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferFacts {
    /// Size of the file.
    pub size_bytes: u64,
    /// Which way it went.
    pub direction: Direction,
    /// How its bytes went.
    pub route: Route,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// What was timed.
    pub metric: Metric,
    /// Set for [`Metric::Transfer`] alone.
    pub transfer: Option<TransferFacts>,
    /// Counted from 0 for each metric, size and direction; warm-ups have no rows.
    pub iteration: u32,
    /// Wall-clock time in milliseconds.
    pub ms: f64,
}

/// The header of `samples.csv`.
pub const CSV_HEADER: &str = "metric,size_bytes,direction,route,iteration,ms";

/// Renders the samples as CSV; no field ever needs quotes.
pub fn to_csv(samples: &[Sample]) -> String {
    let mut text = String::with_capacity(64 * (samples.len() + 1));
    text.push_str(CSV_HEADER);
    text.push('\n');
    for sample in samples {
        let metric = sample.metric.as_str();
        let Sample { iteration, ms, .. } = sample;
        let written = match sample.transfer {
            Some(TransferFacts {
                size_bytes,
                direction,
                route,
            }) => {
                let direction = direction.as_str();
                writeln!(
                    text,
                    "{metric},{size_bytes},{direction},{route},{iteration},{ms:.4}"
                )
            }
            None => writeln!(text, "{metric},,,,{iteration},{ms:.4}"),
        };
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
    text
}

/// The times of one metric in the order in which they were taken.
pub fn latencies(samples: &[Sample], metric: Metric) -> Vec<f64> {
    samples
        .iter()
        .filter(|sample| sample.metric == metric && sample.transfer.is_none())
        .map(|sample| sample.ms)
        .collect()
}

/// The times and routes of one size and direction in the order in which they were taken.
pub fn transfers(samples: &[Sample], size_bytes: u64, direction: Direction) -> Vec<(f64, Route)> {
    samples
        .iter()
        .filter_map(|sample| sample.transfer.map(|facts| (sample, facts)))
        .filter(|(_, facts)| facts.size_bytes == size_bytes && facts.direction == direction)
        .map(|(sample, facts)| (sample.ms, facts.route))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Sample> {
        vec![
            Sample {
                metric: Metric::RpcNoop,
                transfer: None,
                iteration: 0,
                ms: 1.25,
            },
            Sample {
                metric: Metric::Transfer,
                transfer: Some(TransferFacts {
                    size_bytes: 1_048_576,
                    direction: Direction::Upload,
                    route: Route::Lane,
                }),
                iteration: 3,
                ms: 17.0,
            },
        ]
    }

    #[test]
    fn csv_has_one_row_for_each_sample() {
        assert_eq!(
            to_csv(&rows()),
            "metric,size_bytes,direction,route,iteration,ms\n\
             rpc_noop,,,,0,1.2500\n\
             transfer,1048576,upload,lane,3,17.0000\n"
        );
    }

    #[test]
    fn selections_keep_metrics_and_directions_apart() {
        let rows = rows();
        assert_eq!(latencies(&rows, Metric::RpcNoop), [1.25]);
        assert!(latencies(&rows, Metric::ExecTrue).is_empty());
        assert_eq!(
            transfers(&rows, 1_048_576, Direction::Upload),
            [(17.0, Route::Lane)]
        );
        assert!(transfers(&rows, 1_048_576, Direction::Download).is_empty());
    }

    #[test]
    fn words_are_the_same_in_csv_and_json() {
        for metric in Metric::LATENCIES.into_iter().chain([Metric::Transfer]) {
            let json = serde_json::to_string(&metric).unwrap();
            assert_eq!(json, format!("\"{}\"", metric.as_str()));
        }
        for direction in [Direction::Upload, Direction::Download] {
            let json = serde_json::to_string(&direction).unwrap();
            assert_eq!(json, format!("\"{}\"", direction.as_str()));
        }
    }
}
