//! The rounds on a fleet that only notes what it is asked: order, failures, cancelling.

use std::sync::Mutex;

use super::*;
use crate::result::tests::sample_space;
use crate::target::TargetError;

/// Notes what was asked, and can go wrong on request.
#[derive(Default)]
struct Notes {
    log: Mutex<Vec<String>>,
    fail_stop: bool,
    fail_together: bool,
    cancel_at: Option<(usize, CancellationToken)>,
}

impl Notes {
    fn note(&self, what: String, fails: bool) -> Result<(), TargetError> {
        let mut log = self.log.lock().unwrap();
        log.push(what);
        if let Some((at, token)) = &self.cancel_at
            && log.len() == *at
        {
            token.cancel();
        }
        if fails {
            return Err(TargetError::Command {
                command: "true".into(),
                code: 127,
            });
        }
        Ok(())
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().join(" ")
    }
}

impl Fleet for Notes {
    type Space = Kind;

    async fn create(&self, kind: Kind) -> Result<Kind, TargetError> {
        self.note(format!("create.{kind}"), false)?;
        Ok(kind)
    }

    async fn create_together(&self, kind: Kind, count: u32) -> Result<Vec<Kind>, TargetError> {
        self.note(format!("together.{kind}"), self.fail_together)?;
        Ok(vec![kind; count as usize])
    }

    fn facts(&self, kind: &Kind) -> Result<SpaceFacts, TargetError> {
        Ok(sample_space(*kind))
    }

    async fn stop(&self, kind: &Kind) -> Result<(), TargetError> {
        self.note(format!("stop.{kind}"), self.fail_stop)
    }

    async fn start(&self, kind: &Kind) -> Result<(), TargetError> {
        self.note(format!("start.{kind}"), false)
    }

    async fn delete(&self, kind: Kind) -> Result<(), TargetError> {
        self.note(format!("delete.{kind}"), false)
    }

    async fn clear(&self) {
        // A note that does not fail returns nothing.
        let _ = self.note("clear".to_owned(), false);
    }
}

fn plan() -> RolloutPlan {
    RolloutPlan {
        iterations: 2,
        batches: 2,
        batch_size: 3,
    }
}

async fn go(
    fleet: &Notes,
    kinds: &[Kind],
    cancel: &CancellationToken,
) -> (Result<Vec<Measurements>, BenchError>, Vec<Event>) {
    let events = Mutex::new(Vec::new());
    let tell = |event| events.lock().unwrap().push(event);
    let result = measure(fleet, kinds, &plan(), &tell, cancel).await;
    (result, events.into_inner().unwrap())
}

const BOTH: [Kind; 2] = [Kind::Container, Kind::Vm];

#[tokio::test]
async fn kinds_take_turns_and_warm_ups_leave_no_rows() {
    let fleet = Notes::default();
    let (result, events) = go(&fleet, &BOTH, &CancellationToken::new()).await;
    let round = |kind: &str| format!("create.{kind} stop.{kind} start.{kind} delete.{kind}");
    let batch = |kind: &str| format!("together.{kind} delete.{kind} delete.{kind} delete.{kind}");
    let expected = [
        "create.container delete.container create.vm delete.vm".to_owned(),
        round("container"),
        round("vm"),
        round("container"),
        round("vm"),
        batch("container"),
        batch("vm"),
        batch("container"),
        batch("vm"),
    ];
    assert_eq!(fleet.log(), expected.join(" "));
    for (measured, kind) in result.unwrap().iter().zip(BOTH) {
        assert_eq!(measured.facts.kind, kind);
        assert_eq!(measured.samples.len(), 2 * 4 + 2);
        let last = measured.samples.last().unwrap();
        assert_eq!((last.spaces, last.iteration), (3, 1));
        assert!(measured.failures.is_empty());
    }
    let Some(Event::Step { done, total, label }) = events.last() else {
        panic!("no steps")
    };
    assert_eq!(*done + 1, *total);
    assert_eq!(label, "3 at once (vm)");
}

#[tokio::test]
async fn a_batch_that_fails_is_noted_and_is_the_last_of_its_kind() {
    let fleet = Notes {
        fail_together: true,
        ..Notes::default()
    };
    let (result, _) = go(&fleet, &[Kind::Vm], &CancellationToken::new()).await;
    let measured = result.unwrap().remove(0);
    assert_eq!(measured.samples.len(), 2 * 4);
    assert_eq!(measured.failures.len(), 1);
    assert_eq!(
        measured.failures[0].reason,
        "`true` in the Space ended with 127"
    );
    assert!(
        fleet.log().ends_with("together.vm clear"),
        "{}",
        fleet.log()
    );
}

#[tokio::test]
async fn a_round_that_fails_ends_the_run_and_names_the_kind() {
    let fleet = Notes {
        fail_stop: true,
        ..Notes::default()
    };
    let (result, _) = go(&fleet, &[Kind::Vm], &CancellationToken::new()).await;
    assert_eq!(
        result.unwrap_err().to_string(),
        "cannot time stop (vm): `true` ended with 127"
    );
}

#[tokio::test]
async fn cancelling_ends_the_run_after_the_step_under_way() {
    for at in [3, 4, 5, 6, 11] {
        let cancel = CancellationToken::new();
        let fleet = Notes {
            cancel_at: Some((at, cancel.clone())),
            ..Notes::default()
        };
        let (result, _) = go(&fleet, &[Kind::Vm], &cancel).await;
        assert!(matches!(result, Err(BenchError::Cancelled)), "{result:?}");
        assert_eq!(fleet.log.lock().unwrap().len(), at);
    }
}
