//! The command line, parsed by hand: three words do not justify a parser in every initramfs.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// What guestd is asked to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Be the first process of a machine.
    Init,
    /// Be the first process of a container.
    Container,
    /// Serve as a plain process.
    Serve(ServeArgs),
    /// Serve as the child of the first process; everything else is in the descriptor.
    ServeInherited {
        /// Where the settings are.
        settings: RawFd,
    },
    /// Print the build.
    Version,
    /// Print how it is used.
    Help,
}

/// Arguments of `serve`.
#[derive(Debug, PartialEq, Eq)]
pub struct ServeArgs {
    /// Where to listen.
    pub listen: SocketAddr,
    /// File with the token.
    pub token_file: Option<PathBuf>,
    /// The first token comes with `Init`.
    pub await_init: bool,
    /// The lane's memory.
    pub lane: Option<PathBuf>,
    /// A cgroup folder for commands.
    pub cgroup: Option<PathBuf>,
}

/// The word by which a runtime of containers starts guestd.
const CONTAINER: &str = "container";

/// How guestd is used.
pub const USAGE: &str = "\
usage: airlock-guestd serve --listen ADDR [--token-file FILE | --await-init]
                            [--lane PATH] [--cgroup DIR]
       airlock-guestd --version

As process 1 it needs no arguments, in a container the word `container`.
";

/// Why the command line makes no sense.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// Nothing was asked for.
    #[error("a subcommand is needed")]
    NoCommand,
    /// An unknown word.
    #[error("unknown argument {0:?}")]
    Unknown(OsString),
    /// An option without its value.
    #[error("{0} needs a value")]
    NoValue(&'static str),
    /// A value that does not fit.
    #[error("{value:?} is no value for {option}")]
    BadValue {
        /// The option.
        option: &'static str,
        /// What was given.
        value: OsString,
    },
    /// `serve` without an address.
    #[error("serve needs --listen ADDR")]
    NoListen,
    /// Two rules for access.
    #[error("--token-file and --await-init exclude each other")]
    TwoRules,
}

/// Parses the arguments behind the program's name.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    is_first_process: bool,
) -> Result<Command, UsageError> {
    let mut args = args.into_iter();
    if is_first_process {
        // The kernel passes words of its command line on; none is meant for guestd. A runtime of
        // containers says this one word.
        return Ok(match args.next() {
            Some(word) if word == CONTAINER => Command::Container,
            Some(_) | None => Command::Init,
        });
    }
    let command = args.next().ok_or(UsageError::NoCommand)?;
    match command.to_str() {
        Some("serve") => parse_serve(args),
        Some("--version") => Ok(Command::Version),
        Some("--help" | "-h") => Ok(Command::Help),
        Some(_) | None => Err(UsageError::Unknown(command)),
    }
}

fn parse_serve(mut args: impl Iterator<Item = OsString>) -> Result<Command, UsageError> {
    let mut listen = None;
    let mut serve = ServeArgs {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        token_file: None,
        await_init: false,
        lane: None,
        cgroup: None,
    };
    while let Some(arg) = args.next() {
        let mut value = |option| args.next().ok_or(UsageError::NoValue(option));
        match arg.to_str() {
            Some("--listen") => listen = Some(parse_value("--listen", value("--listen")?)?),
            Some("--token-file") => serve.token_file = Some(value("--token-file")?.into()),
            Some("--await-init") => serve.await_init = true,
            Some("--lane") => serve.lane = Some(value("--lane")?.into()),
            Some("--cgroup") => serve.cgroup = Some(value("--cgroup")?.into()),
            Some("--inherited") => {
                let settings = parse_value("--inherited", value("--inherited")?)?;
                return Ok(Command::ServeInherited { settings });
            }
            Some(_) | None => return Err(UsageError::Unknown(arg)),
        }
    }
    if serve.await_init && serve.token_file.is_some() {
        return Err(UsageError::TwoRules);
    }
    serve.listen = listen.ok_or(UsageError::NoListen)?;
    Ok(Command::Serve(serve))
}

fn parse_value<T: std::str::FromStr>(
    option: &'static str,
    value: OsString,
) -> Result<T, UsageError> {
    value
        .to_str()
        .and_then(|text| text.parse().ok())
        .ok_or(UsageError::BadValue { option, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<Command, UsageError> {
        parse(line.split_whitespace().map(OsString::from), false)
    }

    #[test]
    fn serve_takes_its_options() {
        let line = "serve --listen 127.0.0.1:0 --token-file /t --lane /l --cgroup /c";
        let expected = ServeArgs {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            token_file: Some("/t".into()),
            await_init: false,
            lane: Some("/l".into()),
            cgroup: Some("/c".into()),
        };
        assert_eq!(parse_words(line), Ok(Command::Serve(expected)));
        let inherited = Command::ServeInherited { settings: 3 };
        assert_eq!(parse_words("serve --inherited 3"), Ok(inherited));
    }

    #[test]
    fn nonsense_is_named() {
        assert_eq!(parse_words(""), Err(UsageError::NoCommand));
        assert_eq!(parse_words("serve"), Err(UsageError::NoListen));
        assert_eq!(
            parse_words("serve --listen"),
            Err(UsageError::NoValue("--listen"))
        );
        assert!(matches!(
            parse_words("serve --listen x"),
            Err(UsageError::BadValue { .. })
        ));
        assert!(matches!(parse_words("server"), Err(UsageError::Unknown(_))));
        assert!(matches!(
            parse_words("serve --listen 127.0.0.1:1 x"),
            Err(UsageError::Unknown(_))
        ));
        let both = parse_words("serve --listen 127.0.0.1:1 --await-init --token-file /t");
        assert_eq!(both, Err(UsageError::TwoRules));
    }

    #[test]
    fn the_first_process_ignores_the_kernels_words() {
        assert_eq!(parse(["quiet".into()], true), Ok(Command::Init));
        assert_eq!(parse(["container".into()], true), Ok(Command::Container));
        assert!(parse(["container".into()], false).is_err());
    }
}
