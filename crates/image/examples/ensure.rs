//! Builds an image in `AIRLOCK_HOME`: `cargo run -p airlock-image --example ensure -- tiny`.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to a person"
)]

use std::env;
use std::error::Error;

use airlock_image::{Catalog, ImageError, Progress};
use airlock_model::{HomePaths, ImageName};
use tokio_util::sync::CancellationToken;

fn main() -> Result<(), Box<dyn Error>> {
    let home = HomePaths::new(env::var_os("AIRLOCK_HOME").ok_or("AIRLOCK_HOME is not set")?);
    let name = ImageName::new(env::args().nth(1).ok_or("which image?")?)?;
    let show = |step: Progress| {
        let percent = step
            .fraction
            .map(|fraction| format!(" {:.0} %", fraction * 100.0));
        eprintln!(
            "{}{} {}",
            step.phase,
            percent.unwrap_or_default(),
            step.detail
        );
    };
    match Catalog::new(&home).ensure(&name, &show, &CancellationToken::new()) {
        Ok(image) => {
            println!("{image:#?}");
            Ok(())
        }
        Err(error) => {
            eprintln!("{}", explain(&error));
            Err("no image".into())
        }
    }
}

fn explain(error: &ImageError) -> String {
    let mut lines = vec![error.to_string()];
    let mut source = error.source();
    while let Some(cause) = source {
        lines.push(format!("because: {cause}"));
        source = cause.source();
    }
    lines.extend(error.hint().map(|hint| format!("hint: {hint}")));
    lines.join("\n  ")
}
