//! `airlock spaces create`.

use airlock::SpaceSpec;
use airlock::image::ImageSource;

use crate::args::CreateArgs;
use crate::commands::spaces::narrator;
use crate::commands::{self, Context};
use crate::exit::{CommandError, Exit};
use crate::output;

/// Makes a Space. Prints its name, so that `NAME=$(airlock spaces create tiny)` works.
pub(crate) async fn run(args: CreateArgs, context: &Context) -> Result<(), CommandError> {
    supported(&args)?;
    let airlock = commands::airlock()?;
    let name = match args.name {
        Some(name) => name,
        None => airlock.free_name()?,
    };
    let image = match args.image {
        ImageSource::Named(name) => name,
        other => {
            airlock
                .import(other, narrator(context), &context.cancel)
                .await?
        }
    };
    let spec = SpaceSpec {
        name: name.clone(),
        image,
        kind: args.kind,
        runtime: args.runtime,
        accel: args.accel,
        cpus: args.cpus,
        memory_mb: args.memory_mb,
        disk_gb: args.disk_gb,
        network: args.network,
    };
    airlock
        .create(spec, narrator(context), &context.cancel)
        .await?;
    if args.json {
        return output::json(&airlock.info(&name)?);
    }
    output::data(&format!("{name}\n"))
}

/// Refuses what the grammar knows and this version cannot do, before anything is made.
fn supported(args: &CreateArgs) -> Result<(), CommandError> {
    if args.on != "local" {
        let message = format!(
            "Spaces on {:?} are not supported yet, only on this machine",
            args.on
        );
        return Err(CommandError::new(Exit::Unsupported, message)
            .hint("leave --on away, or use --on local"));
    }
    Ok(())
}
