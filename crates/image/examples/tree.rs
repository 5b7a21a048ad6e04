//! Imports an image into `AIRLOCK_HOME`, if need be, and unpacks it:
//! `cargo run -p airlock-image --example tree -- linux [FIRST_ID]`; the image is a name,
//! `oci:REFERENCE`, a folder or an archive.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to a person"
)]

use std::env;
use std::error::Error;
use std::time::Instant;

use airlock_image::{Catalog, ImageSource, Owners, Progress};
use airlock_model::HomePaths;
use tokio_util::sync::CancellationToken;

fn main() -> Result<(), Box<dyn Error>> {
    let home = HomePaths::new(env::var_os("AIRLOCK_HOME").ok_or("AIRLOCK_HOME is not set")?);
    let source: ImageSource = env::args().nth(1).ok_or("which image?")?.parse()?;
    let owners = match env::args().nth(2) {
        Some(base) => Owners::Shifted {
            uid_base: base.parse()?,
            gid_base: base.parse()?,
        },
        None => Owners::Caller,
    };
    let show = |step: Progress| eprintln!("{} {}", step.phase, step.detail);
    let start = Instant::now();
    let catalog = Catalog::new(&home);
    let cancel = CancellationToken::new();
    let name = catalog.import(&source, &show, &cancel)?;
    let tree = catalog.ensure_tree(&name, owners, &show, &cancel)?;
    println!(
        "{name}: {tree:#?}\nafter {:.3} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}
