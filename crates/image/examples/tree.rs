//! Unpacks an image in `AIRLOCK_HOME`:
//! `cargo run -p airlock-image --example tree -- linux [FIRST_ID]`.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to a person"
)]

use std::env;
use std::error::Error;
use std::time::Instant;

use airlock_image::{Catalog, Owners, Progress};
use airlock_model::{HomePaths, ImageName};
use tokio_util::sync::CancellationToken;

fn main() -> Result<(), Box<dyn Error>> {
    let home = HomePaths::new(env::var_os("AIRLOCK_HOME").ok_or("AIRLOCK_HOME is not set")?);
    let name = ImageName::new(env::args().nth(1).ok_or("which image?")?)?;
    let owners = match env::args().nth(2) {
        Some(base) => Owners::Shifted {
            uid_base: base.parse()?,
            gid_base: base.parse()?,
        },
        None => Owners::Caller,
    };
    let show = |step: Progress| eprintln!("{} {}", step.phase, step.detail);
    let start = Instant::now();
    let tree = Catalog::new(&home).ensure_tree(&name, owners, &show, &CancellationToken::new())?;
    println!("{tree:#?}\nafter {:.3} s", start.elapsed().as_secs_f64());
    Ok(())
}
