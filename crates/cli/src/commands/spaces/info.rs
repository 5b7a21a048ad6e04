//! `airlock spaces info`.

use crate::args::NamesArgs;
use crate::commands::spaces::details;
use crate::commands::{self, Context, each};
use crate::exit::CommandError;
use crate::output;

/// Says everything about each Space.
pub(crate) async fn run(args: NamesArgs, context: &Context) -> Result<(), CommandError> {
    let airlock = commands::airlock()?;
    let mut first = true;
    each(args.names, context, async |name| {
        let info = airlock.info(&name)?;
        if args.json {
            return output::json(&info);
        }
        let gap = if std::mem::take(&mut first) { "" } else { "\n" };
        output::data(&format!("{gap}{}", details(&info)))
    })
    .await
}
