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
    /// A log that several share, and the name in it.
    common: Option<(String, std::sync::Arc<Mutex<Vec<String>>>)>,
}

impl Folder {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            log: Mutex::default(),
            flip_a_byte: false,
            fail_command: false,
            cancel_at: None,
            common: None,
        }
    }

    fn note(&self, what: impl Into<String>) {
        let what = what.into();
        if let Some((name, common)) = &self.common {
            common.lock().unwrap().push(format!("{name}:{what}"));
        }
        let mut log = self.log.lock().unwrap();
        log.push(what);
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
        assert!(!self.dir.path().join(name).exists(), "a file is replaced");
        std::fs::copy(source, self.dir.path().join(name)).unwrap();
        Ok(Route::Lane)
    }

    async fn download(&self, name: &str, target: &Path) -> Result<Route, TargetError> {
        self.note("download");
        let mut bytes = std::fs::read(self.dir.path().join(name)).unwrap();
        if self.flip_a_byte {
            bytes[77] ^= 1;
        }
        assert!(!target.exists(), "a file is replaced");
        std::fs::write(target, bytes).unwrap();
        Ok(Route::Network)
    }

    async fn remove(&self, name: &str) -> Result<(), TargetError> {
        self.note("remove");
        // As `rm -f` does.
        let _ = std::fs::remove_file(self.dir.path().join(name));
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

fn alone(target: Folder) -> Subject<Folder> {
    Subject {
        label: None,
        target,
    }
}

async fn go(
    target: &Subject<Folder>,
    cancel: &CancellationToken,
) -> (
    Result<Measurements, BenchError>,
    tempfile::TempDir,
    Vec<Event>,
) {
    let scratch = tempfile::tempdir().unwrap();
    let events = Mutex::new(Vec::new());
    let tell = |event| events.lock().unwrap().push(event);
    let subjects = std::slice::from_ref(target);
    let result = measure(subjects, &plan(), 1, scratch.path(), &tell, cancel).await;
    let result = result.map(|mut all| all.remove(0));
    (result, scratch, events.into_inner().unwrap())
}

#[tokio::test]
async fn every_step_happens_in_order_and_warm_ups_leave_no_rows() {
    let target = alone(Folder::new());
    let (result, scratch, events) = go(&target, &CancellationToken::new()).await;
    let measured = result.unwrap();
    let log = target.target.log.lock().unwrap().join(" ");
    assert_eq!(
        log,
        "rates rpc_noop rpc_noop rpc_noop exec_true exec_true exec_true \
         exec_sh_true exec_sh_true exec_sh_true \
         remove upload download remove upload download remove upload download remove rates"
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
    assert_eq!(target.target.dir.path().read_dir().unwrap().count(), 0);
    let Some(Event::Step { done, total, .. }) = events.last() else {
        panic!("no steps")
    };
    assert_eq!(*done + 1, *total);
}

#[tokio::test]
async fn a_flipped_byte_ends_the_run() {
    let target = alone(Folder {
        flip_a_byte: true,
        ..Folder::new()
    });
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
    let target = alone(Folder {
        fail_command: true,
        ..Folder::new()
    });
    let (result, ..) = go(&target, &CancellationToken::new()).await;
    let error = result.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot time exec_true: `true` ended with 127"
    );
}

#[tokio::test]
async fn cancelling_ends_the_run_after_the_step_under_way() {
    for at in [1, 4, 12, 16] {
        let cancel = CancellationToken::new();
        let target = alone(Folder {
            cancel_at: Some((at, cancel.clone())),
            ..Folder::new()
        });
        let (result, ..) = go(&target, &cancel).await;
        assert!(matches!(result, Err(BenchError::Cancelled)), "{result:?}");
        assert_eq!(target.target.log.lock().unwrap().len(), at);
    }
}

#[tokio::test]
async fn two_spaces_take_turns_and_keep_their_samples_apart() {
    let log = std::sync::Arc::new(Mutex::new(Vec::new()));
    let named = |label: &str| Subject {
        label: Some(label.to_owned()),
        target: Folder {
            common: Some((label.to_owned(), log.clone())),
            ..Folder::new()
        },
    };
    let subjects = [named("a"), named("b")];
    let scratch = tempfile::tempdir().unwrap();
    let cancel = CancellationToken::new();
    let labels = Mutex::new(Vec::new());
    let tell = |event| {
        if let Event::Step { label, .. } = event {
            labels.lock().unwrap().push(label);
        }
    };
    let measured = measure(&subjects, &plan(), 1, scratch.path(), &tell, &cancel).await;
    let log = log.lock().unwrap();
    let files: Vec<&str> = log
        .iter()
        .map(String::as_str)
        .filter(|what| what.contains("load"))
        .collect();
    assert_eq!(
        files.join(" "),
        "a:upload a:download b:upload b:download \
         a:upload a:download b:upload b:download \
         a:upload a:download b:upload b:download"
    );
    for measurements in measured.unwrap() {
        assert_eq!(measurements.samples.len(), 3 * 2 + 2 * 2);
        assert_eq!(measurements.rates.len(), 2);
    }
    assert_eq!(scratch.path().read_dir().unwrap().count(), 0);
    let labels = labels.lock().unwrap();
    assert_eq!(labels[0], "rates of the Space (a)");
    assert!(labels.contains(&"upload of 1 MiB (b)".to_owned()));
}

#[tokio::test]
async fn a_failure_names_the_space_when_there_are_several() {
    let named = |label: &str, fail_command| Subject {
        label: Some(label.to_owned()),
        target: Folder {
            fail_command,
            ..Folder::new()
        },
    };
    let subjects = [named("container", false), named("vm", true)];
    let scratch = tempfile::tempdir().unwrap();
    let cancel = CancellationToken::new();
    let result = measure(&subjects, &plan(), 1, scratch.path(), &|_| {}, &cancel).await;
    assert_eq!(
        result.unwrap_err().to_string(),
        "cannot time exec_true (vm): `true` ended with 127"
    );
}
