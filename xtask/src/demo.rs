//! `cargo xtask demo`: from a fresh clone to a table of speeds.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::run::{run, say};
use crate::{build, setup};

/// Sizes in MiB and repetitions that show every size in a few minutes under software emulation.
const FILES: &str = "1:10,4:10,16:5,100:3,512:2";

/// Builds Airlock and lets it measure itself in a Space of its own.
pub(crate) fn run_demo(root: &Path, image: &str) -> Result<()> {
    setup::run_quietly_if_complete()?;
    say("building (a few minutes the first time)");
    let built = build::airlock(root)?;
    run(Command::new(&built.airlock).arg("doctor"))?;
    say("the first Space builds its image first; later ones start in seconds");
    run(Command::new(&built.airlock)
        .args(["bench", "run", "file-transfer", "--image", image])
        .args(["--files", FILES, "--iters", "100"]))?;
    say(&format!(
        "now try it yourself: {} --help",
        built.airlock.display()
    ));
    Ok(())
}
