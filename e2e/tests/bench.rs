//! The benchmark measures a Space of its own, and deletes it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on shall end, and say why"
)]

use airlock_e2e::{airlock, command, home, run};

#[test]
fn file_transfer_leaves_a_report_and_no_space() {
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
    let name = result["space"]["name"].as_str().map(str::to_owned);
    if let Some(name) = name {
        assert!(
            !home().join("spaces").join(name).exists(),
            "its Space stays behind"
        );
    }
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
