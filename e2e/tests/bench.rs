//! The benchmark measures a Space of its own, and deletes it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on shall end, and say why"
)]

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use airlock_e2e::{airlock, command, home, run};

/// Benchmarks name their Spaces themselves, so one test at a time, and what is new afterwards
/// was left by it.
struct Alone {
    before: BTreeSet<String>,
    _turn: MutexGuard<'static, ()>,
}

impl Alone {
    fn now() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            before: spaces(),
            _turn: turn,
        }
    }

    fn nothing_stays(&self) {
        let after = spaces();
        let left: Vec<_> = after.difference(&self.before).collect();
        assert!(left.is_empty(), "Spaces stay behind: {left:?}");
    }
}

/// Everything in the folder of Spaces, unfinished ones too.
fn spaces() -> BTreeSet<String> {
    let entries = std::fs::read_dir(home().join("spaces"));
    entries
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn file_transfer_leaves_a_report_and_no_space() {
    let alone = Alone::now();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let ran = run(
        command(["bench", "run", "file-transfer", "--image", "tiny"]).args([
            "--files",
            "1:2,4:1",
            "--iters",
            "3",
            "--json",
            "--out",
            out.to_str().unwrap(),
        ]),
    )
    .expect(0);
    let result = ran.json();
    let on_disk = std::fs::read(out.join("result.json")).unwrap();
    let on_disk: serde_json::Value = serde_json::from_slice(&on_disk).unwrap();
    assert_eq!(result, on_disk);
    let samples = std::fs::read_to_string(out.join("samples.csv")).unwrap();
    // 3 x 3 round trips; up and down of 2 + 1 files; and the header.
    assert_eq!(samples.lines().count(), 1 + 9 + 6, "{samples}");
    let report = std::fs::read_to_string(out.join("report.md")).unwrap();
    for part in ["MiB/s", "lane", "p95"] {
        assert!(report.contains(part), "no {part} in {report}");
    }
    alone.nothing_stays();
    // A second run never writes over the first.
    let _ran = airlock([
        "bench",
        "run",
        "file-transfer",
        "--out",
        out.to_str().unwrap(),
    ])
    .expect(1)
    .says("is there already");
}

#[test]
fn several_kinds_take_turns_and_stand_side_by_side() {
    let alone = Alone::now();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let ran = run(
        command(["bench", "run", "file-transfer", "--image", "tiny"])
            .args(["--kind", "container", "--kind", "vm"])
            .args(["--files", "1:1", "--iters", "2", "--json", "--out"])
            .arg(&out),
    )
    .expect(0);
    let results = ran.json();
    let results = results.as_array().unwrap();
    let kinds: Vec<_> = results
        .iter()
        .map(|result| &result["environment"]["space"]["kind"])
        .collect();
    assert_eq!(kinds, ["container", "vm"]);
    for (kind, result) in ["container", "vm"].into_iter().zip(results) {
        for file in ["result.json", "samples.csv", "report.md"] {
            assert!(out.join(kind).join(file).is_file(), "no {kind}/{file}");
        }
        for transfer in result["transfers"].as_array().unwrap() {
            let routes = transfer["routes"].as_object().unwrap();
            assert_eq!(routes.keys().collect::<Vec<_>>(), ["lane"], "{transfer}");
        }
    }
    let report = std::fs::read_to_string(out.join("report.md")).unwrap();
    assert!(
        report.contains("| container |") && report.contains(" vm |"),
        "{report}"
    );
    alone.nothing_stays();
}

#[test]
fn a_rollout_leaves_its_samples_and_no_space() {
    let alone = Alone::now();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let ran = run(command(["bench", "run", "rollout", "--image", "tiny"])
        .args([
            "--kind",
            "container",
            "--n",
            "2",
            "--batches",
            "1",
            "--batch-size",
            "3",
        ])
        .args(["--json", "--out"])
        .arg(&out))
    .expect(0);
    let result = ran.json();
    assert_eq!(result["schema"], "airlock.bench.rollout/1");
    let samples = std::fs::read_to_string(out.join("samples.csv")).unwrap();
    // Four metrics of two Spaces, one batch, and the header.
    assert_eq!(samples.lines().count(), 1 + 8 + 1, "{samples}");
    alone.nothing_stays();
}
