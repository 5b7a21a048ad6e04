//! `airlock bench`.

use std::path::PathBuf;

use airlock_bench::plan::{FilesSpec, MAX_ITERATIONS};
use airlock_bench::rollout::{
    DEFAULT_BATCH_SIZE, DEFAULT_BATCHES, DEFAULT_ITERATIONS, MAX_BATCH_SIZE,
};
use airlock_model::{ImageName, Kind, SpaceName};
use clap::{Args, Subcommand};

use super::words;

/// What to do with benchmarks.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Run a benchmark
    #[command(subcommand)]
    Run(BenchRun),
}

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchRun {
    /// Files into and out of a Space, and how fast it answers
    FileTransfer(FileTransferArgs),
    /// How soon a Space is there, and how soon it is gone
    Rollout(RolloutArgs),
}

/// How to run `file-transfer`.
#[derive(Debug, Args)]
#[command(after_help = "\
Makes a Space, measures, and deletes it. Writes result.json, samples.csv and report.md into the \
folder of --out, which must not be there yet, and prints the results as a table. With several \
kinds a Space of each is measured in turn; each has a folder of its own in that of --out, and one \
table shows them side by side.")]
pub(crate) struct FileTransferArgs {
    /// Measure this running Space; it is kept
    #[arg(long, value_name = "N", conflicts_with_all = ["image", "kind"])]
    pub(crate) space: Option<SpaceName>,
    /// Image of the Space to make
    #[arg(long, value_name = "I", default_value = "linux")]
    pub(crate) image: ImageName,
    /// What the Space is; several to compare them, such as --kind container --kind vm [default:
    /// auto]
    #[arg(long, value_name = "KIND", value_parser = words(Kind::ALL, Kind::as_str))]
    pub(crate) kind: Vec<Kind>,
    /// Sizes in MiB and how often each is sent each way, such as 1:20,16:5
    #[arg(
        long,
        value_name = "SPEC",
        default_value = "1:20,4:20,16:10,100:10,512:5"
    )]
    pub(crate) files: FilesSpec,
    /// Round trips of each latency metric
    #[arg(long, value_name = "N", default_value_t = airlock_bench::plan::DEFAULT_LATENCY_ITERATIONS,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ITERATIONS)))]
    pub(crate) iters: u32,
    /// Folder for the results; bench-results/TIME-file-transfer if absent
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print result.json instead of the table; an array of them with several kinds
    #[arg(long)]
    pub(crate) json: bool,
}

/// How to run `rollout`.
#[derive(Debug, Args)]
#[command(after_help = "\
Makes, stops, starts and deletes one Space after the other, then makes several at once; times each \
until the Space has run `true`. Writes result.json, samples.csv and report.md into the folder of \
--out, which must not be there yet, and prints the results as a table. With several kinds they \
take turns; each has a folder of its own in that of --out, and one table shows them side by side.")]
pub(crate) struct RolloutArgs {
    /// Image of the Spaces
    #[arg(long, value_name = "I", default_value = "linux")]
    pub(crate) image: ImageName,
    /// What the Spaces are; several to compare them, such as --kind container --kind vm [default:
    /// auto]
    #[arg(long, value_name = "KIND", value_parser = words(Kind::ALL, Kind::as_str))]
    pub(crate) kind: Vec<Kind>,
    /// Spaces to make one after the other
    #[arg(long, value_name = "N", default_value_t = DEFAULT_ITERATIONS,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ITERATIONS)))]
    pub(crate) n: u32,
    /// How often to make several at once
    #[arg(long, value_name = "N", default_value_t = DEFAULT_BATCHES,
        value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_ITERATIONS)))]
    pub(crate) batches: u32,
    /// How many to make at once
    #[arg(long, value_name = "N", default_value_t = DEFAULT_BATCH_SIZE,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_BATCH_SIZE)))]
    pub(crate) batch_size: u32,
    /// Folder for the results; bench-results/TIME-rollout if absent
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print result.json instead of the table; an array of them with several kinds
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_in_the_help_is_the_default_plan() {
        let spec: FilesSpec = "1:20,4:20,16:10,100:10,512:5".parse().unwrap();
        assert_eq!(spec, FilesSpec::default());
    }
}
