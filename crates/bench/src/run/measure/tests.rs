//! The schedule on a target of folders: order, warm-ups, comparison, cancelling.

use std::sync::Mutex;

use airlock_model::Route;

use super::*;
use crate::samples::{self, Latency};
use crate::target::TargetError;

/// Keeps files in a folder, notes what was asked, and can go wrong on request.
struct Folder {
    dir: tempfile::TempDir,
    log: Mutex<Vec<String>>,
    flip_a_byte: bool,
    fail_command: bool,
    cancel_at: Option<(usize, CancellationToken)>,
}

impl Folder {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            log: Mutex::default(),
            flip_a_byte: false,
            fail_command: false,
            cancel_at: None,
        }
    }

    fn note(&self, what: impl Into<String>) {
        let mut log = self.log.lock().unwrap();
        log.push(what.into());
        if let Some((at, token)) = &self.cancel_at
            && log.len() == *at
        {
            token.cancel();
        }
    }
}

impl Target for Folder {
    async fn round_trip(&self, latency: Latency) -> Result<(), TargetError> {
        self.note(latency.as_str());
        if self.fail_command && latency == Latency::ExecTrue {
            return Err(TargetError::Command {
                command: "true".into(),
                code: 127,
            });
        }
        Ok(())
    }

    async fn upload(&self, source: &Path, name: &str) -> Result<Route, TargetError> {
        self.note("upload");
        std::fs::copy(source, self.dir.path().join(name)).unwrap();
        Ok(Route::Lane)
    }

    async fn download(&self, name: &str, target: &Path) -> Result<Route, TargetError> {
        self.note("download");
        let mut bytes = std::fs::read(self.dir.path().join(name)).unwrap();
        if self.flip_a_byte {
            bytes[77] ^= 1;
        }
        std::fs::write(target, bytes).unwrap();
        Ok(Route::Network)
    }

    async fn remove(&self, name: &str) -> Result<(), TargetError> {
        self.note("remove");
        std::fs::remove_file(self.dir.path().join(name)).unwrap();
        Ok(())
    }

    async fn rates(&self) -> Result<GuestRates, TargetError> {
        self.note("rates");
        Ok(GuestRates {
            cpus: 1,
            sha256_mib_s: 1.0,
            sha256_name: "x".into(),
            sha256_all_mib_s: 1.0,
            copy_mib_s: 1.0,
            spawn_ms: vec![],
        })
    }
}

fn plan() -> Plan {
    Plan {
        latency_iterations: 2,
        latency_warm_ups: 1,
        files: "1:2".parse().unwrap(),
    }
}

async fn go(
    target: &Folder,
    cancel: &CancellationToken,
) -> (
    Result<Measurements, BenchError>,
    tempfile::TempDir,
    Vec<Event>,
) {
    let scratch = tempfile::tempdir().unwrap();
    let events = Mutex::new(Vec::new());
    let tell = |event| events.lock().unwrap().push(event);
    let result = measure(target, &plan(), 1, scratch.path(), &tell, cancel).await;
    (result, scratch, events.into_inner().unwrap())
}

#[tokio::test]
async fn every_step_happens_in_order_and_warm_ups_leave_no_rows() {
    let target = Folder::new();
    let (result, scratch, events) = go(&target, &CancellationToken::new()).await;
    let measured = result.unwrap();
    let log = target.log.lock().unwrap().join(" ");
    assert_eq!(
        log,
        "rates rpc_noop rpc_noop rpc_noop exec_true exec_true exec_true \
         exec_sh_true exec_sh_true exec_sh_true \
         upload download upload download upload download remove rates"
    );
    for latency in Latency::ALL {
        assert_eq!(samples::latencies(&measured.samples, latency).len(), 2);
    }
    let up = samples::transfers(&measured.samples, 1 << 20, Direction::Upload);
    let down = samples::transfers(&measured.samples, 1 << 20, Direction::Download);
    assert_eq!((up.len(), down.len()), (2, 2));
    assert_eq!((up[0].1, down[0].1), (Route::Lane, Route::Network));
    assert_eq!(measured.rates.len(), 2);
    // Nothing is left on either side, and the last step was the last announced.
    assert_eq!(scratch.path().read_dir().unwrap().count(), 0);
    assert_eq!(target.dir.path().read_dir().unwrap().count(), 0);
    let Some(Event::Step { done, total, .. }) = events.last() else {
        panic!("no steps")
    };
    assert_eq!(*done + 1, *total);
}

#[tokio::test]
async fn a_flipped_byte_ends_the_run() {
    let target = Folder {
        flip_a_byte: true,
        ..Folder::new()
    };
    let (result, ..) = go(&target, &CancellationToken::new()).await;
    let error = result.unwrap_err();
    assert!(matches!(error, BenchError::Different { .. }), "{error}");
    assert!(
        error
            .to_string()
            .ends_with("came back with another byte at 77"),
        "{error}"
    );
}

#[tokio::test]
async fn a_command_that_fails_ends_the_run_and_is_named() {
    let target = Folder {
        fail_command: true,
        ..Folder::new()
    };
    let (result, ..) = go(&target, &CancellationToken::new()).await;
    let error = result.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot time exec_true: `true` ended with 127"
    );
}

#[tokio::test]
async fn cancelling_ends_the_run_after_the_step_under_way() {
    for at in [1, 4, 11, 16] {
        let cancel = CancellationToken::new();
        let target = Folder {
            cancel_at: Some((at, cancel.clone())),
            ..Folder::new()
        };
        let (result, ..) = go(&target, &cancel).await;
        assert!(matches!(result, Err(BenchError::Cancelled)), "{result:?}");
        assert_eq!(target.log.lock().unwrap().len(), at);
    }
}
