//! Chores of the Airlock workspace: `cargo xtask <chore>`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod codegen;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the Airlock workspace")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Generate the gRPC code from proto/.
    Codegen {
        /// Only say whether the committed code is up to date.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> Result<()> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()?;
    match Args::parse().chore {
        Chore::Codegen { check } => codegen::run(&root, check),
    }
}
