//! The command line as clap parses it. Nothing here looks at the system.

use std::ffi::OsString;

use airlock::image::ImageSource;
use airlock_model::{Accel, ImageName, Kind, Network, Runtime, SpaceName};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

pub(crate) mod bench;
pub(crate) mod copy;
pub(crate) mod exec;

/// Isolated Linux machines ("Spaces") on this computer, and a fast verified way in and out.
#[derive(Debug, Parser)]
#[command(
    name = "airlock",
    version,
    arg_required_else_help = true,
    subcommand_required = true,
    after_help = "\
Exit codes (of every command but exec): 0 ok, 1 failure, 2 usage, 3 not found, 4 unsupported or \
not set up, 5 nothing answers, 6 denied, 7 host disk full, 124 timed out, 130 cancelled.
Environment: AIRLOCK_HOME (default ~/.airlock), NO_COLOR. Airlock never sends anything about you \
anywhere, so DO_NOT_TRACK has nothing to turn off."
)]
pub(crate) struct Cli {
    /// Say only what went wrong
    #[arg(
        long,
        short,
        global = true,
        conflicts_with = "verbose",
        display_order = 900
    )]
    pub(crate) quiet: bool,

    /// Say more about what happens
    #[arg(long, short, global = true, display_order = 901)]
    pub(crate) verbose: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make, list, stop, start and delete Spaces
    #[command(subcommand)]
    Spaces(SpacesCommand),
    /// Copy a file into or out of a Space, verified
    Cp(copy::CopyArgs),
    /// Run a command in a Space
    Exec(exec::ExecArgs),
    /// List, build and remove images
    #[command(subcommand)]
    Image(ImageCommand),
    /// Read and change settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Say what this host has, what is missing, and how to mend it
    Doctor(DoctorArgs),
    /// Measure
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// What to do with Spaces.
#[derive(Debug, Subcommand)]
pub(crate) enum SpacesCommand {
    /// Make a Space and start it; prints its name
    Create(CreateArgs),
    /// List Spaces
    Ls(ListArgs),
    /// Say everything about Spaces
    Info(NamesArgs),
    /// Shut Spaces down; their disks are kept
    Stop(StopArgs),
    /// Start stopped Spaces
    Start(NamesArgs),
    /// Delete Spaces and everything in them
    Delete(DeleteArgs),
}

/// What the new Space is to be.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Image to start from: a name (built first if it is missing), oci:REF from a registry, a
    /// folder, or an archive (.tar, .tar.gz, .tar.zst) of a root file system
    pub(crate) image: ImageSource,
    /// Its name: a-z, 0-9 and -, at most 63; made up if absent
    #[arg(long, value_name = "N")]
    pub(crate) name: Option<SpaceName>,
    /// Machine that runs it; only `local` so far
    #[arg(long, default_value = "local", value_name = "HOST")]
    pub(crate) on: String,
    /// What it is
    #[arg(long, default_value = "auto", value_parser = words(Kind::ALL, Kind::as_str))]
    pub(crate) kind: Kind,
    /// What runs it
    #[arg(long, default_value = "auto", value_parser = words(Runtime::ALL, Runtime::as_str))]
    pub(crate) runtime: Runtime,
    /// What executes its instructions
    #[arg(long, default_value = "auto", value_parser = words(Accel::ALL, Accel::as_str))]
    pub(crate) accel: Accel,
    /// Virtual CPUs
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cpus: u32,
    /// Memory in MiB
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) memory_mb: u64,
    /// Size of the root file system in GiB; 8 if absent. Of a VM alone
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) disk_gb: Option<u64>,
    /// What it can reach
    #[arg(long, default_value = "default", value_parser = words(Network::ALL, Network::as_str))]
    pub(crate) network: Network,
    /// Print what `spaces info --json` prints
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which Spaces to list.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only these
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<SpaceName>,
    /// Print a JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

/// Some Spaces, at least one.
#[derive(Debug, Args)]
pub(crate) struct NamesArgs {
    /// The Spaces
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<SpaceName>,
    /// Print one JSON object a line for each Space
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which Spaces to stop, and how.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    pub(crate) spaces: NamesArgs,
    /// Pull the plug: do not wait for the Space to shut down
    #[arg(long)]
    pub(crate) force: bool,
}

/// Which Spaces to delete.
#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// The Spaces; one that is not there counts as deleted
    #[arg(
        required_unless_present = "all",
        conflicts_with = "all",
        value_name = "NAME"
    )]
    pub(crate) names: Vec<SpaceName>,
    /// Every Space
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object a line for each Space
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to do with settings.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show all settings and the values in force
    List {
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print the value in force of a setting
    Get {
        /// The setting
        key: String,
    },
    /// Change a setting
    Set {
        /// The setting, such as default.kind
        key: String,
        /// Its new value
        value: String,
    },
}

/// What to do with images.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// List images
    Ls {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Build an image, with the newest packages
    Build {
        /// The image
        name: ImageName,
        /// Use what was fetched before, where it is enough
        #[arg(long)]
        cached: bool,
        /// Print what `image ls --json` prints for it
        #[arg(long)]
        json: bool,
    },
    /// Remove images
    Rm {
        /// The images
        #[arg(required = true, value_name = "NAME")]
        names: Vec<ImageName>,
        /// Print one JSON object a line for each image
        #[arg(long)]
        json: bool,
    },
}

/// How to report on this host.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// A parser of one of the closed sets of words, which also lists them in the help.
fn words<T>(all: &'static [T], word: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    PossibleValuesParser::new(all.iter().map(|&value| word(value))).map(move |text: String| {
        let found = all.iter().find(|&&value| word(value) == text);
        // clap lets only the listed words through.
        *found.unwrap_or(&all[0])
    })
}

/// Whether these arguments (without the program's name) call `exec`, whose exit codes differ even
/// for a command line that cannot be parsed.
pub(crate) fn is_exec(args: impl IntoIterator<Item = OsString>) -> bool {
    args.into_iter()
        .find(|arg| !arg.as_encoded_bytes().starts_with(b"-"))
        .is_some_and(|first| first == "exec")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn clap_finds_no_contradiction() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_grammar_is_understood() {
        for line in [
            "spaces create linux",
            "spaces create tiny --name n --on local --kind vm --runtime qemu --accel tcg --cpus 2 \
             --memory-mb 512 --disk-gb 24 --network none --json",
            "spaces ls",
            "spaces ls a b --json",
            "spaces info a",
            "spaces stop a --force",
            "spaces start a b",
            "spaces delete a b",
            "spaces delete --all --json",
            "cp a b:/c",
            "cp - b:/c --fsync --sha256 --json",
            "cp b:/c -",
            "exec a -- ls -l --color",
            "exec a --cwd /tmp --env A=B --env C= --user root --timeout 1.5 --json -i -- sh -c x",
            "image ls --json",
            "image build tiny",
            "image rm tiny linux",
            "doctor --json",
            "bench run file-transfer",
            "bench run file-transfer --space a --files 1:20,16:5 --iters 5 --out d --json",
            "bench run file-transfer --image tiny",
            "bench run file-transfer --image tiny --kind container --kind vm",
            "bench run rollout",
            "bench run rollout --image tiny --kind auto --n 2 --batches 0 --batch-size 4 --out d --json",
            "completions bash",
            "-q spaces ls",
            "spaces ls --verbose",
        ] {
            let words = ["airlock"].into_iter().chain(line.split_ascii_whitespace());
            Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "spaces create",
            "spaces create Linux",
            "spaces create linux --name -x",
            "spaces create linux --kind pod",
            "spaces create linux --cpus 0",
            "spaces create linux --memory-mb -1",
            "spaces info",
            "spaces delete",
            "spaces delete a --all",
            "spaces delete A",
            "cp a",
            "cp a b c",
            "exec a ls",
            "exec a --",
            "exec -- ls",
            "exec a --timeout nan -- ls",
            "exec a --timeout -1 -- ls",
            "exec a --env =x -- ls",
            "exec a --env x -- ls",
            "bench run file-transfer --files 0:1",
            "bench run file-transfer --iters 0",
            "bench run file-transfer --space a --image b",
            "bench run file-transfer --space a --kind vm",
            "bench run file-transfer --kind pod",
            "bench run rollout --n 0",
            "bench run rollout --batch-size 0",
            "bench run rollout --batch-size 257",
            "bench run rollout --space a",
            "-q -v spaces ls",
        ] {
            let words = ["airlock"].into_iter().chain(line.split_ascii_whitespace());
            assert!(Cli::try_parse_from(words).is_err(), "{line}");
        }
    }

    #[test]
    fn exec_is_recognised_behind_flags() {
        let is = |line: &str| is_exec(line.split_ascii_whitespace().map(OsString::from));
        assert!(is("exec a"));
        assert!(is("--quiet exec"));
        assert!(!is("spaces exec"));
        assert!(!is(""));
    }
}
