//! `cargo xtask demo`: from a fresh clone to a table of speeds.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::run::{attempt, run, say};
use crate::{build, setup};

/// What is compared, in the order of the columns.
const KINDS: [&str; 2] = ["container", "vm"];
/// Sizes in MiB and repetitions that show every size in a few minutes under software emulation.
const FILES: &str = "1:10,4:10,16:5,100:3,512:2";
/// The same for the image that lives in memory, whose root has no room for the largest file twice.
const FILES_IN_MEMORY: &str = "1:10,4:10,16:5,100:3";

/// Builds Airlock and lets it measure itself, in a Space of each kind that this host can make.
pub(crate) fn run_demo(root: &Path, image: &str) -> Result<()> {
    setup::run_quietly_if_complete()?;
    say("building (a few minutes the first time)");
    let built = build::airlock(root)?;
    let airlock = || Command::new(&built.airlock);
    run(airlock().arg("doctor"))?;
    say("one Space of each kind as a trial; the first builds its image, later ones start at once");
    let (mut kinds, mut lacking) = (Vec::new(), Vec::new());
    for kind in KINDS {
        match attempt(airlock().args(["spaces", "create", image, "--kind", kind]))? {
            Ok(name) => {
                run(airlock().args(["spaces", "delete", &name]))?;
                kinds.push(kind);
            }
            Err(why) => lacking.push(format!("no {kind} was measured: {why}")),
        }
    }
    if kinds.is_empty() {
        bail!("no Space can be made here; {}", lacking.join("; "));
    }
    let mut bench = airlock();
    bench.args(["bench", "run", "file-transfer", "--image", image]);
    let files = match image {
        "tiny" => FILES_IN_MEMORY,
        _ => FILES,
    };
    bench.args(["--files", files, "--iters", "100"]);
    for kind in kinds {
        bench.args(["--kind", kind]);
    }
    run(&mut bench)?;
    for line in lacking {
        say(&line);
    }
    say(&format!(
        "now try it yourself: {} --help",
        built.airlock.display()
    ));
    Ok(())
}
