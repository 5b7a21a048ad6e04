//! `airlock spaces info`.

use crate::args::NamesArgs;
use crate::commands::spaces::details;
use crate::commands::{Context, each};
use crate::exit::CommandError;

/// Says everything about each Space.
pub(crate) async fn run(args: NamesArgs, context: &Context) -> Result<(), CommandError> {
    let airlock = context.airlock()?;
    let mut first = true;
    each(args.names, context, async |name| {
        let info = airlock.info(&name)?;
        if args.json {
            return context.out.json(&info);
        }
        let gap = if std::mem::take(&mut first) { "" } else { "\n" };
        context.out.data(&format!("{gap}{}", details(&info)))
    })
    .await
}
