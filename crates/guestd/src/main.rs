//! The in-Space daemon.

use std::io::{self, Write as _};
use std::process::ExitCode;

use airlock_guestd::cli::{self, Command};
use airlock_guestd::console::say;
use airlock_guestd::serve;
use airlock_guestd::system::BUILD_ID;

fn main() -> ExitCode {
    let is_first_process = std::process::id() == 1;
    let command = match cli::parse(std::env::args_os().skip(1), is_first_process) {
        Ok(command) => command,
        Err(error) => {
            say(format_args!("{error}\n{}", cli::USAGE));
            return ExitCode::from(2);
        }
    };
    match command {
        Command::Init => airlock_guestd::init::run(),
        Command::Container => airlock_guestd::init::run_container(),
        Command::Serve(args) => serve::plain(args),
        Command::ServeInherited { settings } => airlock_guestd::init::serve_child(settings),
        Command::Version => print(BUILD_ID),
        Command::Help => print(cli::USAGE.trim_end()),
    }
}

fn print(text: &str) -> ExitCode {
    match writeln!(io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
