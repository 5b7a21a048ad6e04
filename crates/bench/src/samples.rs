//! Raw measurements, one row each, and their CSV form.
//!
//! `samples.csv` has the columns `metric,size_bytes,direction,route,iteration,ms`; `size_bytes`,
//! `direction` and `route` are empty for latency metrics.

use std::fmt::Write as _;

use airlock_model::Route;
use serde::{Deserialize, Serialize};

/// One round trip that is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Latency {
    /// A call that does nothing in the Space.
    RpcNoop,
    /// Running `true`, from request to exit code.
    ExecTrue,
    /// Running `sh -c true`.
    ExecShTrue,
}

impl Latency {
    /// Every one, in the order in which they are measured.
    pub const ALL: [Self; 3] = [Self::RpcNoop, Self::ExecTrue, Self::ExecShTrue];

    /// The word in CSV and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RpcNoop => "rpc_noop",
            Self::ExecTrue => "exec_true",
            Self::ExecShTrue => "exec_sh_true",
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

/// One file, from the call to the receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Size of the file.
    pub size_bytes: u64,
    /// Which way it went.
    pub direction: Direction,
    /// How its bytes went.
    pub route: Route,
}

/// What was timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    /// A round trip.
    Latency(Latency),
    /// A file.
    Transfer(Transfer),
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// What was timed.
    pub measured: Measured,
    /// Counted from 0 for each latency and for each size and direction; warm-ups have no rows.
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
    for Sample {
        measured,
        iteration,
        ms,
    } in samples
    {
        let written = match measured {
            Measured::Latency(latency) => {
                writeln!(text, "{},,,,{iteration},{ms:.4}", latency.as_str())
            }
            Measured::Transfer(Transfer {
                size_bytes,
                direction,
                route,
            }) => {
                let direction = direction.as_str();
                writeln!(
                    text,
                    "transfer,{size_bytes},{direction},{route},{iteration},{ms:.4}"
                )
            }
        };
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
    text
}

/// The times of one latency in the order in which they were taken.
pub fn latencies(samples: &[Sample], wanted: Latency) -> Vec<f64> {
    samples
        .iter()
        .filter(|sample| sample.measured == Measured::Latency(wanted))
        .map(|sample| sample.ms)
        .collect()
}

/// The times and routes of one size and direction in the order in which they were taken.
pub fn transfers(samples: &[Sample], size_bytes: u64, direction: Direction) -> Vec<(f64, Route)> {
    samples
        .iter()
        .filter_map(|sample| match sample.measured {
            Measured::Transfer(t) if t.size_bytes == size_bytes && t.direction == direction => {
                Some((sample.ms, t.route))
            }
            Measured::Transfer(_) | Measured::Latency(_) => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Sample> {
        let upload = Transfer {
            size_bytes: 1_048_576,
            direction: Direction::Upload,
            route: Route::Lane,
        };
        vec![
            Sample {
                measured: Measured::Latency(Latency::RpcNoop),
                iteration: 0,
                ms: 1.25,
            },
            Sample {
                measured: Measured::Transfer(upload),
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
        assert_eq!(latencies(&rows, Latency::RpcNoop), [1.25]);
        assert!(latencies(&rows, Latency::ExecTrue).is_empty());
        assert_eq!(
            transfers(&rows, 1_048_576, Direction::Upload),
            [(17.0, Route::Lane)]
        );
        assert!(transfers(&rows, 1_048_576, Direction::Download).is_empty());
    }

    #[test]
    fn words_are_the_same_in_csv_and_json() {
        for latency in Latency::ALL {
            let json = serde_json::to_string(&latency).unwrap();
            assert_eq!(json, format!("\"{}\"", latency.as_str()));
        }
        for direction in [Direction::Upload, Direction::Download] {
            let json = serde_json::to_string(&direction).unwrap();
            assert_eq!(json, format!("\"{}\"", direction.as_str()));
        }
    }
}
