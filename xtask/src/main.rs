//! Chores of the Airlock workspace: `cargo xtask <chore>`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod build;
mod codegen;
mod demo;
mod fuzz;
mod layers;
mod run;
mod setup;
mod test;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the Airlock workspace")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Make a container and a VM, move files of 1 to 512 MiB in and out of both, print the speeds
    /// side by side, delete them.
    Demo {
        /// The image: `linux` (Debian) or `tiny` (starts at once, lives in memory).
        #[arg(long, default_value = "linux")]
        image: String,
    },
    /// Everything that must hold: what CI runs. Layout and format checks, lints, all tests.
    Ci,
    /// All tests, from unit to end-to-end on real Spaces, without format checks and lints.
    Test {
        /// Only tests that need no Space.
        #[arg(long)]
        unit: bool,
        /// On which Spaces; absent: all on containers, and a small set on machines.
        #[arg(long, value_enum, env = "AIRLOCK_TEST_KINDS")]
        kinds: Option<test::Kinds>,
        /// Passed on to the end-to-end tests, a test name for instance.
        filter: Option<String>,
    },
    /// The long tests at full size: files of many GiB. Takes an hour under emulation.
    Torture,
    /// Throw random bytes at every parser of what a Space sends.
    Fuzz {
        /// How long each target runs.
        #[arg(long, default_value_t = 60)]
        seconds: u32,
    },
    /// Build the airlock program (release) with the daemon for Spaces inside.
    Build,
    /// Install the packages that Airlock needs on this host, saying what each is for.
    Setup,
    /// Generate the gRPC code from proto/.
    Codegen {
        /// Only say whether the committed code is up to date.
        #[arg(long)]
        check: bool,
    },
    /// Check that crates depend on each other only as the layout allows.
    Layers,
}

fn main() -> Result<()> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()?;
    match Args::parse().chore {
        Chore::Demo { image } => demo::run_demo(&root, &image),
        Chore::Ci => test::ci(&root),
        Chore::Test {
            unit: true,
            kinds: _,
            filter: _,
        } => test::unit(&root),
        Chore::Test {
            unit: false,
            kinds,
            filter,
        } => test::all(&root, kinds, filter.as_deref()),
        Chore::Torture => test::torture(&root),
        Chore::Fuzz { seconds } => fuzz::run_all(&root, seconds),
        Chore::Build => build::airlock(&root)
            .map(|built| run::say(&format!("built {}", built.airlock.display()))),
        Chore::Setup => setup::run_chore(),
        Chore::Codegen { check } => codegen::run(&root, check),
        Chore::Layers => layers::check(&root),
    }
}
