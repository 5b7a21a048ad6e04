//! What a run measures: how many round trips, and which files how often.

use std::str::FromStr;

use airlock_model::size::MIB;
use serde::{Deserialize, Serialize};

/// Round trips of each latency metric when nothing else is asked for.
pub const DEFAULT_LATENCY_ITERATIONS: u32 = 300;
/// Round trips before the measured ones, whose times are dropped.
pub const LATENCY_WARM_UPS: u32 = 5;
/// The largest file of a plan in MiB: 64 GiB, the size at which `--disk-gb` would need a thought.
pub const MAX_FILE_MIB: u64 = 64 * 1024;
/// The most repetitions of one measurement.
pub const MAX_ITERATIONS: u32 = 100_000;

/// Everything one run of `file-transfer` does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Measured round trips of each latency metric.
    pub latency_iterations: u32,
    /// Round trips of each latency metric before those.
    pub latency_warm_ups: u32,
    /// The files, in the order in which they are measured.
    pub files: FilesSpec,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            latency_iterations: DEFAULT_LATENCY_ITERATIONS,
            latency_warm_ups: LATENCY_WARM_UPS,
            files: FilesSpec::default(),
        }
    }
}

/// One size and how often it is sent each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePlan {
    /// Size in MiB.
    pub size_mib: u64,
    /// Measured uploads, and as many downloads.
    pub iterations: u32,
}

impl FilePlan {
    /// Size in bytes.
    pub const fn size_bytes(&self) -> u64 {
        self.size_mib * MIB
    }
}

/// The files of a plan; as text `SIZE_MIB:ITERATIONS,…`, for example `1:20,16:5`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FilesSpec(Vec<FilePlan>);

impl FilesSpec {
    /// The files in order.
    pub fn as_slice(&self) -> &[FilePlan] {
        &self.0
    }

    /// The largest size in bytes.
    pub fn largest_bytes(&self) -> u64 {
        self.0.iter().map(FilePlan::size_bytes).max().unwrap_or(0)
    }
}

impl Default for FilesSpec {
    fn default() -> Self {
        let plan = |size_mib, iterations| FilePlan {
            size_mib,
            iterations,
        };
        Self(vec![
            plan(1, 20),
            plan(4, 20),
            plan(16, 10),
            plan(100, 10),
            plan(512, 5),
        ])
    }
}

/// Why a text is not a list of files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No entry at all, or nothing between two commas.
    #[error("entry {position} is empty; expected SIZE_MIB:ITERATIONS, for example 1:20,16:5")]
    Empty {
        /// Which entry, counted from 1.
        position: usize,
    },
    /// An entry has no colon, or more than one.
    #[error("{entry:?} is not SIZE_MIB:ITERATIONS, for example 16:5")]
    NoPair {
        /// The entry.
        entry: String,
    },
    /// A number is none, or outside its range.
    #[error("{what} {found:?} in {entry:?} is not a whole number from 1 to {max}")]
    BadNumber {
        /// Which of the two numbers.
        what: &'static str,
        /// The text in its place.
        found: String,
        /// The whole entry.
        entry: String,
        /// The largest number allowed.
        max: u64,
    },
    /// One size stands there twice, so its samples could not be told apart.
    #[error("size {size_mib} MiB is there twice")]
    Twice {
        /// The size.
        size_mib: u64,
    },
}

impl FromStr for FilesSpec {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let mut files: Vec<FilePlan> = Vec::new();
        for (index, entry) in text.split(',').map(str::trim).enumerate() {
            if entry.is_empty() {
                return Err(PlanError::Empty {
                    position: index + 1,
                });
            }
            let file = parse_entry(entry)?;
            if files.iter().any(|seen| seen.size_mib == file.size_mib) {
                return Err(PlanError::Twice {
                    size_mib: file.size_mib,
                });
            }
            files.push(file);
        }
        Ok(Self(files))
    }
}

fn parse_entry(entry: &str) -> Result<FilePlan, PlanError> {
    let no_pair = || PlanError::NoPair {
        entry: entry.to_owned(),
    };
    let (size, iterations) = entry.split_once(':').ok_or_else(no_pair)?;
    if iterations.contains(':') {
        return Err(no_pair());
    }
    let size_mib = parse_number(size, "size", entry, MAX_FILE_MIB)?;
    let iterations = parse_number(iterations, "number", entry, u64::from(MAX_ITERATIONS))?;
    Ok(FilePlan {
        size_mib,
        iterations: iterations as u32,
    })
}

fn parse_number(text: &str, what: &'static str, entry: &str, max: u64) -> Result<u64, PlanError> {
    // `u64::from_str` takes a leading plus sign, which no one means here.
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(number) if digits && (1..=max).contains(&number) => Ok(number),
        Ok(_) | Err(_) => Err(PlanError::BadNumber {
            what,
            found: text.to_owned(),
            entry: entry.to_owned(),
            max,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_documented_form() {
        let spec: FilesSpec = "1:20, 16:5".parse().unwrap();
        assert_eq!(
            spec.as_slice(),
            [
                FilePlan {
                    size_mib: 1,
                    iterations: 20
                },
                FilePlan {
                    size_mib: 16,
                    iterations: 5
                },
            ]
        );
        assert_eq!(spec.largest_bytes(), 16 * MIB);
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        for (text, message) in [
            ("", "entry 1 is empty"),
            ("1:20,", "entry 2 is empty"),
            ("16", "\"16\" is not SIZE_MIB:ITERATIONS"),
            ("1:2:3", "\"1:2:3\" is not SIZE_MIB:ITERATIONS"),
            ("0:5", "size \"0\" in \"0:5\" is not a whole number from 1"),
            ("1:0", "number \"0\" in \"1:0\""),
            ("1.5:2", "size \"1.5\""),
            ("+1:2", "size \"+1\""),
            ("-1:2", "size \"-1\""),
            ("1:", "number \"\""),
            ("65537:1", "from 1 to 65536"),
            ("99999999999999999999:1", "size \"99999999999999999999\""),
            ("4:1,4:2", "size 4 MiB is there twice"),
        ] {
            let error = text.parse::<FilesSpec>().unwrap_err().to_string();
            assert!(error.contains(message), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_default_is_the_published_plan() {
        let sizes: Vec<_> = FilesSpec::default()
            .as_slice()
            .iter()
            .map(|file| (file.size_mib, file.iterations))
            .collect();
        assert_eq!(sizes, [(1, 20), (4, 20), (16, 10), (100, 10), (512, 5)]);
    }
}
