//! `airlock spaces delete`.

use airlock::SpaceName;
use serde::Serialize;

use crate::args::DeleteArgs;
use crate::commands::{self, Context, each};
use crate::exit::CommandError;
use crate::output;

/// What `--json` prints for each Space. Stable.
#[derive(Debug, Serialize)]
struct Deleted {
    name: SpaceName,
    /// False: there was no such Space.
    deleted: bool,
}

/// Deletes each Space. One that is not there is what was wanted, so it is no error.
pub(crate) async fn run(args: DeleteArgs, context: &Context) -> Result<(), CommandError> {
    let airlock = commands::airlock()?;
    let names = if args.all {
        airlock
            .list()?
            .into_iter()
            .map(|space| space.name)
            .collect()
    } else {
        args.names
    };
    each(names, context, async |name| {
        let deleted = airlock.delete(&name).await?;
        if args.json {
            return output::json(&Deleted { name, deleted });
        }
        context.out.note(&if deleted {
            format!("deleted {name}")
        } else {
            format!("there is no Space {name}")
        });
        Ok(())
    })
    .await
}
