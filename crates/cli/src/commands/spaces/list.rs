//! `airlock spaces ls`.

use crate::args::ListArgs;
use crate::commands::spaces::list_table;
use crate::commands::{self, Context};
use crate::exit::{CommandError, Exit};
use crate::output;

/// Lists all Spaces, or those that are named.
pub(crate) fn run(args: &ListArgs, context: &Context) -> Result<(), CommandError> {
    let mut spaces = commands::airlock()?.list()?;
    let missing: Vec<_> = args
        .names
        .iter()
        .filter(|name| !spaces.iter().any(|space| space.name == **name))
        .map(ToString::to_string)
        .collect();
    if !args.names.is_empty() {
        spaces.retain(|space| args.names.contains(&space.name));
    }
    if args.json {
        output::json(&spaces)?;
    } else if spaces.is_empty() && missing.is_empty() {
        context
            .out
            .note("there are no Spaces; make one: airlock spaces create linux");
    } else if !spaces.is_empty() {
        output::data(&list_table(&spaces))?;
    }
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!("there is no Space {}", missing.join(", "));
    Err(CommandError::new(Exit::NotFound, message))
}
