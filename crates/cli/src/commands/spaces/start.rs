//! `airlock spaces start`.

use crate::args::NamesArgs;
use crate::commands::spaces::narrator;
use crate::commands::{self, Context, each};
use crate::exit::CommandError;
use crate::output;

/// Starts each Space.
pub(crate) async fn run(args: NamesArgs, context: &Context) -> Result<(), CommandError> {
    let airlock = commands::airlock()?;
    each(args.names, context, async |name| {
        let info = airlock
            .start(&name, narrator(context), &context.cancel)
            .await?;
        if args.json {
            return output::json(&info);
        }
        context.out.note(&format!("started {name}"));
        Ok(())
    })
    .await
}
