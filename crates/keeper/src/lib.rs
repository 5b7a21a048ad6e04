//! One Space: its runtime, its lane slots, its socket and the handing over of descriptors.
//!
//! A keeper is a process of its own for each running Space. It outlives whoever started it, owns
//! the machine's process (which dies with it, never the other way round unnoticed) and the lane's
//! memory, and hands descriptors to clients. It carries no bulk bytes itself.
//!
//! ```text
//!           launch            healthy              stop / machine exits
//! (start) ─────────► starting ───────► running ─────────► stopping ─────► stopped
//!                       │                 │ machine dies                      ▲
//!                       │ fails, or the   └────────► crashed                  │
//!                       │ starter is gone                                     │
//!                       └──────────────────────────────────────────────────── ┘
//! ```

mod confine;
mod descriptors;
mod guest;
mod lifecycle;
mod logs;
mod process_id;
pub mod protocol;
mod report;
mod runtime;
mod server;
pub mod slots;
mod socket;
mod state_file;

use std::ffi::OsString;
use std::process::ExitCode;

pub use state_file::{StateFileError, read_state};

/// Runs one of Airlock's own processes if `args`, the whole command line, ask for one: `keeper`,
/// or the `minder` of a container.
///
/// Must be called first thing in `main`, before any thread is started or file opened.
pub fn internal_main(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    let word = args.next()?;
    if word == "keeper" {
        return Some(main());
    }
    if word == "minder" {
        let socket = args.next()?.to_str()?.parse().ok()?;
        return Some(airlock_oci::minder::main(socket));
    }
    None
}

/// The program of a keeper: reads a [`protocol::Launch`] from standard input, reports
/// [`protocol::LaunchEvent`]s on standard output until the Space is ready, then serves it until
/// it ends.
///
/// Must be called first thing in `main`, before any thread is started or file opened: it closes
/// every descriptor that it inherited but the standard ones.
fn main() -> ExitCode {
    descriptors::close_inherited();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            report::Reporter::failed_early(&format!("cannot start the keeper: {error}"));
            return ExitCode::FAILURE;
        }
    };
    // Current-thread on purpose: the machine is spawned from the main thread, and the kernel
    // ends it when the thread that spawned it ends.
    match runtime.block_on(lifecycle::run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(lifecycle::Gone) => ExitCode::FAILURE,
    }
}
