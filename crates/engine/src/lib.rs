//! The life of Spaces over `AIRLOCK_HOME`: create, list, start, stop, delete.
//!
//! A library on purpose: no daemon has to run. All state is files; each running Space has one
//! owner, its keeper, and everything here works when any of the others died at any moment.

pub mod config;
mod control;
mod create;
pub mod doctor;
mod error;
mod home;
mod kind;
mod launch;
mod list;
mod mapped;
mod names;
mod record;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use airlock_image::Catalog;
use airlock_model::{HomePaths, SpaceName};

pub use airlock_image as image;
pub use airlock_keeper::protocol;
pub use error::{EngineError, ErrorKind};
pub use list::SpaceInfo;
pub use mapped::MappedError;

/// Runs one of Airlock's own processes if `args`, the whole command line, ask for one.
///
/// Must be called first thing in `main`, before any thread is started or file opened.
pub fn internal_main(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter();
    let (program, word) = (args.next()?, args.next()?);
    if word == mapped::WORD {
        return Some(mapped::main());
    }
    airlock_keeper::internal_main([program, word].into_iter().chain(args))
}

/// The build of this program, as guestd and keepers report theirs too.
pub const BUILD: &str = match option_env!("AIRLOCK_BUILD_ID") {
    Some(build) => build,
    None => env!("CARGO_PKG_VERSION"),
};

/// What happens while a Space is made or started.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Its image is being built.
    Image(airlock_image::Progress),
    /// Something the person should know: which accelerator was chosen, and why.
    Note(String),
    /// Its machine boots.
    Booting,
    /// It answers.
    Ready {
        /// From the start of the machine to the first healthy answer.
        boot_ms: u64,
    },
}

/// Takes [`Event`]s. Called from whatever thread the event happens on.
pub type EventSink<'a> = &'a (dyn Fn(Event) + Send + Sync);

/// The Spaces beneath one `AIRLOCK_HOME`.
#[derive(Debug, Clone)]
pub struct Engine {
    home: HomePaths,
}

impl Engine {
    /// The Spaces beneath `home`, which is made if it is not there. Private to the user.
    pub fn open(home: impl Into<PathBuf>) -> Result<Self, EngineError> {
        let home = home::prepare(&home.into())?;
        let engine = Self { home };
        engine.sweep();
        Ok(engine)
    }

    /// The Spaces beneath `$AIRLOCK_HOME`, or `~/.airlock` where that is not set.
    pub fn open_default() -> Result<Self, EngineError> {
        Self::open(home::default_home()?)
    }

    /// The folder and what lies where in it.
    pub fn home(&self) -> &HomePaths {
        &self.home
    }

    /// The images.
    pub fn catalog(&self) -> Catalog {
        Catalog::new(&self.home)
    }

    /// A name that no Space has.
    pub fn free_name(&self) -> Result<SpaceName, EngineError> {
        names::free(&self.home)
    }

    /// Connects to the keeper of `name`.
    pub async fn keeper(&self, name: &SpaceName) -> Result<protocol::MessageStream, EngineError> {
        let socket = self.home.space(name).keeper_socket();
        match protocol::MessageStream::connect(&socket).await {
            Ok(stream) => Ok(stream),
            Err(source) => Err(self.unreachable(name, source)),
        }
    }

    /// Why nothing answers for `name`.
    fn unreachable(&self, name: &SpaceName, source: std::io::Error) -> EngineError {
        match self.info(name) {
            Ok(info) if info.state == airlock_model::SpaceState::Running => EngineError::NoKeeper {
                name: name.clone(),
                source,
            },
            Ok(info) => EngineError::NotRunning {
                name: name.clone(),
                state: info.state,
            },
            Err(error) => error,
        }
    }
}
