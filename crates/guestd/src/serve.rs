//! The serving process: builds the server, waits for its end, drains.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use airlock_lane::{LaneDevice, OpenError};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::ServeArgs;
use crate::console::{Causes, say};
use crate::server::{
    self, AccessConfig, BuildError, Config, Listen, Role, Server, Token, TokenError,
};
use crate::state::Ending;

/// Why the server did not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The token file cannot be read.
    #[error("cannot read the token file {}", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It holds no token.
    #[error("{} holds no token", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: TokenError,
    },
    /// The lane cannot be opened.
    #[error("cannot use the lane")]
    Lane(#[from] OpenError),
    /// The server could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The server stopped by itself.
    #[error("the server failed")]
    Serve(#[from] tonic::transport::Error),
    /// No runtime, or no signal handler.
    #[error("cannot start")]
    Start(#[source] io::Error),
}

/// Serves as a plain process.
pub fn plain(args: ServeArgs) -> ExitCode {
    match config(args).and_then(|config| run(config, announce_address)) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            say(Causes(&error));
            ExitCode::FAILURE
        }
    }
}

/// Builds and serves until the end; `announce` is told the address once it listens.
pub fn run(config: Config, announce: fn(Option<SocketAddr>)) -> Result<Ending, ServeError> {
    // One thread answers all calls: under emulation a hand-over to another costs 64 us. Work
    // that blocks goes to the runtime's blocking threads.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServeError::Start)?;
    let ending = runtime.block_on(async {
        let server = server::build(config).await?;
        announce(server.address());
        serve(server).await
    });
    // A blocked file system must not keep the process.
    runtime.shutdown_background();
    ending
}

async fn serve(server: Server) -> Result<Ending, ServeError> {
    let shutdown = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Start)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Start)?;
    let serving = server.serve(shutdown.clone());
    tokio::pin!(serving);
    tokio::select! {
        ending = &mut serving => return Ok(ending?),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    shutdown.cancel();
    Ok(serving.await?)
}

fn config(args: ServeArgs) -> Result<Config, ServeError> {
    let access = match args.token_file {
        Some(path) => {
            let text = std::fs::read_to_string(&path).map_err(|source| ServeError::TokenFile {
                path: path.clone(),
                source,
            })?;
            let token = Token::new(&text).map_err(|source| ServeError::Token { path, source })?;
            AccessConfig::Token(token)
        }
        None if args.await_init => AccessConfig::AwaitInit,
        None => AccessConfig::Open,
    };
    Ok(Config {
        listen: Listen::Address(args.listen),
        access,
        role: Role::Plain,
        cgroup: args.cgroup,
        lane: args.lane.map(|path| LaneDevice::open(&path)).transpose()?,
    })
}

fn announce_address(address: Option<SocketAddr>) {
    let Some(address) = address else { return };
    let mut stdout = io::stdout().lock();
    // Whoever closed standard output does not want to know.
    let _ = writeln!(stdout, "listening on {address}").and_then(|()| stdout.flush());
}
