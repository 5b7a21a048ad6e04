//! `airlock spaces stop`.

use airlock::SpaceName;
use serde::Serialize;

use crate::args::StopArgs;
use crate::commands::{self, Context, each};
use crate::exit::CommandError;
use crate::output;

/// What `--json` prints for each Space. Stable.
#[derive(Debug, Serialize)]
struct Stopped {
    name: SpaceName,
    /// False: it was not running.
    stopped: bool,
}

/// Stops each Space; one that is not running is left as it is.
pub(crate) async fn run(args: StopArgs, context: &Context) -> Result<(), CommandError> {
    let airlock = commands::airlock()?;
    each(args.spaces.names, context, async |name| {
        let stopped = airlock.stop(&name, args.force).await?;
        if args.spaces.json {
            return output::json(&Stopped { name, stopped });
        }
        context.out.note(&if stopped {
            format!("stopped {name}")
        } else {
            format!("{name} was not running")
        });
        Ok(())
    })
    .await
}
