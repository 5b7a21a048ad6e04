//! `airlock spaces create`.

use airlock::image::ImageSource;
use airlock::{Kind, SpaceSpec};

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
    let defaults = SpaceSpec::new(name.clone(), image);
    let spec = SpaceSpec {
        kind: args.kind,
        runtime: args.runtime,
        accel: args.accel,
        cpus: args.cpus,
        memory_mb: args.memory_mb,
        disk_gb: args.disk_gb.unwrap_or(defaults.disk_gb),
        network: args.network,
        ..defaults
    };
    airlock
        .create(spec, narrator(context), &context.cancel)
        .await?;
    let info = airlock.info(&name)?;
    if args.disk_gb.is_some() && info.kind == Kind::Container {
        context
            .out
            .note("--disk-gb is not enforced for a container: its disk is the host's");
    }
    if args.json {
        return output::json(&info);
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
