//! `airlock bench`.

use std::path::PathBuf;

use airlock_bench::plan::{FilesSpec, MAX_ITERATIONS};
use airlock_model::{ImageName, SpaceName};
use clap::{Args, Subcommand};

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
}

/// How to run `file-transfer`.
#[derive(Debug, Args)]
#[command(after_help = "\
Makes a Space, measures, and deletes it. Writes result.json, samples.csv and report.md into the \
folder of --out, which must not be there yet, and prints the results as a table.")]
pub(crate) struct FileTransferArgs {
    /// Measure this running Space; it is kept
    #[arg(long, value_name = "N", conflicts_with = "image")]
    pub(crate) space: Option<SpaceName>,
    /// Image of the Space to make
    #[arg(long, value_name = "I", default_value = "linux")]
    pub(crate) image: ImageName,
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
    /// Print result.json instead of the table
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
