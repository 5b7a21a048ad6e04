//! The saved form: derived figures, the committed schema, and a sample that others reuse.

use super::*;
use crate::samples::{Measured, Transfer};
use crate::schema_check::{self as schema, committed};

/// A small run with every field set.
pub(crate) fn sample_result() -> RunResult {
    sample_result_of(Kind::Vm)
}

/// The same of a Space of another kind.
pub(crate) fn sample_result_of(kind: Kind) -> RunResult {
    let plan = Plan {
        latency_iterations: 2,
        latency_warm_ups: 1,
        files: "1:2,100:2".parse().unwrap(),
    };
    let processors = Processors {
        kind,
        space_cpus: 2,
        host_cpus: 2,
    };
    let guest_rates = vec![
        GuestRates {
            cpus: 2,
            sha256_mib_s: 60.0,
            sha256_name: "scalar".into(),
            sha256_all_mib_s: 110.0,
            copy_mib_s: 1700.0,
            spawn_ms: vec![20.0, 22.0],
        },
        GuestRates {
            cpus: 2,
            sha256_mib_s: 50.0,
            sha256_name: "scalar".into(),
            sha256_all_mib_s: 100.0,
            copy_mib_s: 1800.0,
            spawn_ms: vec![21.0],
        },
    ];
    let host_rates = HostRates {
        sha256_mib_s: 1000.0,
        sha256_name: "sha-ni".into(),
        copy_mib_s: 9000.0,
    };
    let limits = Limits::of(processors, guest_rates, vec![host_rates]);
    let samples = sample_rows(&plan);
    let latencies = latency_results(&samples);
    RunResult {
        schema: SCHEMA.into(),
        started_at: "2025-01-02T03:04:05Z".into(),
        duration_seconds: 61.5,
        command: "airlock bench run file-transfer --image linux --files 1:2,100:2 --iters 2".into(),
        seed: 1,
        environment: Environment {
            host: Host {
                cpu_model: "Example CPU".into(),
                cpu_flags: vec!["avx2".into(), "sha_ni".into()],
                cpus: 2,
                memory_mib: 24_105,
                kernel: "Linux 6.1.0 x86_64".into(),
                os: "Debian GNU/Linux 12 (bookworm)".into(),
                home_fs: "ext4".into(),
                scratch_fs: "ext4".into(),
            },
            software: Software {
                airlock_version: "0.1.0".into(),
                binaries: vec![crate::environment::Binary {
                    name: "airlock".into(),
                    sha256: "ab".repeat(32),
                }],
                qemu: "QEMU emulator version 7.2.0".into(),
            },
            space: sample_space(kind),
            load_before: [0.1, 0.2, 0.3],
            load_after: [1.0, 0.5, 0.3],
        },
        exec_minus_spawn_ms: exec_minus_spawn_ms(&latencies, &limits),
        latencies,
        transfers: transfer_results(&samples, &plan, &limits),
        limits,
        plan,
    }
}

pub(crate) fn sample_space(kind: Kind) -> SpaceFacts {
    let facts = SpaceFacts {
        made_for_this_run: true,
        image: ImageName::new("linux").unwrap(),
        kind,
        kind_reason: None,
        runtime: Runtime::Qemu,
        protection: vec!["seccomp: QEMU's own filter".into()],
        accel: Some(Accel::Tcg),
        accel_reason: Some("no guest ran on KVM".into()),
        cpus: 2,
        memory_mb: 2048,
        disk_gb: 8,
        network: Network::Default,
        boot_ms: Some(5_100),
    };
    match kind {
        Kind::Auto | Kind::Vm => facts,
        Kind::Container => SpaceFacts {
            kind_reason: Some("no hardware runs a VM here".into()),
            runtime: Runtime::Runc,
            protection: vec!["user namespace: 65,536 ids".into(), "seccomp: yes".into()],
            accel: None,
            accel_reason: None,
            boot_ms: Some(90),
            ..facts
        },
    }
}

fn sample_rows(plan: &Plan) -> Vec<Sample> {
    let mut rows = Vec::new();
    for latency in Latency::ALL {
        rows.extend((0..2).map(|iteration| Sample {
            measured: Measured::Latency(latency),
            iteration,
            ms: 1.0 + f64::from(iteration),
        }));
    }
    for file in plan.files.as_slice() {
        for iteration in 0..file.iterations {
            for direction in [Direction::Upload, Direction::Download] {
                let size_bytes = file.size_bytes();
                let transfer = Transfer {
                    size_bytes,
                    direction,
                    route: Route::Lane,
                };
                rows.push(Sample {
                    measured: Measured::Transfer(transfer),
                    iteration,
                    ms: 10.0 * file.size_mib as f64,
                });
            }
        }
    }
    rows
}

#[test]
fn limits_take_the_best_rate_times_the_cpus() {
    let limits = sample_result().limits;
    assert!((limits.sha256_mib_s - 120.0).abs() < 1e-9);
    assert!((limits.copy_mib_s - 3600.0).abs() < 1e-9);
    assert!((limits.spawn_ms.unwrap().p50 - 21.0).abs() < 1e-9);
}

#[test]
fn a_rate_is_the_size_by_the_median_and_a_fraction_of_its_limit() {
    let result = sample_result();
    assert_eq!(result.transfers.len(), 4);
    let upload = &result.transfers[2];
    assert_eq!(upload.size_bytes, 100 * 1024 * 1024);
    assert!((upload.mib_s_p50 - 100.0).abs() < 1e-9);
    assert!((upload.of_sha256_limit.unwrap() - 100.0 / 120.0).abs() < 1e-9);
    assert_eq!(upload.routes, BTreeMap::from([("lane".to_owned(), 2)]));
}

#[test]
fn exec_is_compared_with_a_bare_process() {
    let result = sample_result();
    assert!((result.exec_minus_spawn_ms.unwrap() - (1.5 - 21.0)).abs() < 1e-9);
    assert_eq!(exec_minus_spawn_ms(&[], &result.limits), None);
    let unmeasured = Limits {
        spawn_ms: None,
        ..result.limits
    };
    assert_eq!(exec_minus_spawn_ms(&result.latencies, &unmeasured), None);
}

#[test]
fn an_unknown_limit_gives_no_fraction() {
    let plan = sample_result().plan;
    let processors = Processors {
        kind: Kind::Vm,
        space_cpus: 2,
        host_cpus: 2,
    };
    let limits = Limits::of(processors, vec![], vec![]);
    for transfer in transfer_results(&sample_rows(&plan), &plan, &limits) {
        assert_eq!(transfer.of_sha256_limit, None);
        assert_eq!(transfer.of_copy_limit, None);
    }
}

#[test]
fn the_saved_form_reads_back_the_same() {
    let result = sample_result();
    let json = serde_json::to_string(&result).unwrap();
    assert_eq!(serde_json::from_str::<RunResult>(&json).unwrap(), result);
}

#[test]
fn a_saved_run_fits_the_committed_schema() {
    let schema = committed("schema/file-transfer-2.json");
    for kind in [Kind::Vm, Kind::Container] {
        let value = serde_json::to_value(sample_result_of(kind)).unwrap();
        let faults = schema::faults(&schema, &value);
        assert!(faults.is_empty(), "{faults:#?}");
    }
    assert_eq!(
        schema["properties"]["schema"]["const"], SCHEMA,
        "the schema's own name"
    );
}

#[test]
fn the_published_runs_fit_the_schemas_that_they_name() {
    for run in [
        "file-transfer/container",
        "file-transfer/vm",
        "rollout/container",
        "rollout/vm",
    ] {
        let published = committed(&format!("{run}/result.json"));
        let name = published["schema"].as_str().unwrap();
        let (benchmark, number) = name
            .strip_prefix("airlock.bench.")
            .and_then(|name| name.split_once('/'))
            .unwrap();
        let schema = committed(&format!("schema/{benchmark}-{number}.json"));
        let faults = schema::faults(&schema, &published);
        assert!(faults.is_empty(), "{run}: {faults:#?}");
    }
}

#[test]
fn the_check_itself_finds_faults() {
    let schema = committed("schema/file-transfer-2.json");
    let mut value = serde_json::to_value(sample_result()).unwrap();
    value["schema"] = "other".into();
    value["transfers"][0]["ms"]
        .as_object_mut()
        .unwrap()
        .remove("p95");
    value["transfers"][1]["direction"] = "sideways".into();
    value["unknown"] = 1.into();
    let faults = schema::faults(&schema, &value);
    assert_eq!(faults.len(), 4, "{faults:#?}");
}
