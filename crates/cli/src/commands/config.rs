//! `airlock config`.

use std::collections::BTreeMap;

use crate::args::ConfigCommand;
use crate::commands::{self, Context};
use crate::exit::CommandError;
use crate::output;

/// Reads or changes settings.
pub(crate) fn run(command: ConfigCommand, context: &Context) -> Result<(), CommandError> {
    let airlock = commands::airlock()?;
    match command {
        ConfigCommand::List { json } => {
            let all = airlock.list_settings()?;
            if json {
                return output::json(&all.into_iter().collect::<BTreeMap<_, _>>());
            }
            let lines = all.iter().map(|(key, value)| format!("{key} = {value}\n"));
            output::data(&lines.collect::<String>())
        }
        ConfigCommand::Get { key } => output::data(&format!("{}\n", airlock.get_setting(&key)?)),
        ConfigCommand::Set { key, value } => {
            airlock.set_setting(&key, &value)?;
            context.out.note(&format!("{key} = {value}"));
            Ok(())
        }
    }
}
