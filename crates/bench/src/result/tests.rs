//! The saved form: derived figures, the committed schema, and a sample that others reuse.

use serde_json::Value;

use super::*;
use crate::samples::{Measured, Transfer};

/// A small run with every field set.
pub(crate) fn sample_result() -> RunResult {
    let plan = Plan {
        latency_iterations: 2,
        latency_warm_ups: 1,
        files: "1:2,100:2".parse().unwrap(),
    };
    let limits = Limits::of(vec![
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
    ]);
    let samples = sample_rows(&plan);
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
            space: SpaceFacts {
                made_for_this_run: true,
                image: ImageName::new("linux").unwrap(),
                kind: Kind::Vm,
                runtime: Runtime::Qemu,
                accel: Some(Accel::Tcg),
                accel_reason: Some("no guest ran on KVM".into()),
                cpus: 2,
                memory_mb: 2048,
                disk_gb: 8,
                network: Network::Default,
                boot_ms: Some(5_100),
            },
            load_before: [0.1, 0.2, 0.3],
            load_after: [1.0, 0.5, 0.3],
        },
        latencies: latency_results(&samples),
        transfers: transfer_results(&samples, &plan, &limits),
        limits,
        plan,
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
fn an_unknown_limit_gives_no_fraction() {
    let plan = sample_result().plan;
    let limits = Limits::of(vec![]);
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
    let schema = committed_schema();
    let value = serde_json::to_value(sample_result()).unwrap();
    let faults = faults(&schema, &schema, &value, "$");
    assert!(faults.is_empty(), "{faults:#?}");
    assert_eq!(
        schema["properties"]["schema"]["const"], SCHEMA,
        "the schema's own name"
    );
}

#[test]
fn the_check_itself_finds_faults() {
    let schema = committed_schema();
    let mut value = serde_json::to_value(sample_result()).unwrap();
    value["schema"] = "other".into();
    value["transfers"][0]["ms"]
        .as_object_mut()
        .unwrap()
        .remove("p95");
    value["transfers"][1]["direction"] = "sideways".into();
    value["unknown"] = 1.into();
    let faults = faults(&schema, &schema, &value, "$");
    assert_eq!(faults.len(), 4, "{faults:#?}");
}

fn committed_schema() -> Value {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/benchmarks/schema/file-transfer-1.json"
    );
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// As much of JSON Schema as the committed file uses. A field that the schema does not know is a
/// fault here, so that no field is added without being documented.
fn faults(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.strip_prefix("#/$defs/").unwrap();
        return faults(root, &root["$defs"][name], value, at);
    }
    let mut found = Vec::new();
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => vec![],
    };
    let is = |name: &&str| match *name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("unknown type {other}"),
    };
    if !types.is_empty() && !types.iter().any(is) {
        found.push(format!("{at}: {value} is none of {types:?}"));
    }
    if schema.get("const").is_some_and(|only| only != value) {
        found.push(format!("{at}: {value} is not {}", schema["const"]));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        found.push(format!("{at}: {value} is none of {allowed:?}"));
    }
    if let Some(object) = value.as_object() {
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap();
            if !object.contains_key(name) {
                found.push(format!("{at}: {name} is missing"));
            }
        }
        for (name, inner) in object {
            let at = format!("{at}.{name}");
            let known = schema["properties"].get(name);
            match known.or_else(|| schema.get("additionalProperties")) {
                Some(inner_schema) => found.extend(faults(root, inner_schema, inner, &at)),
                None => found.push(format!("{at} is not in the schema")),
            }
        }
    }
    for (index, inner) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(faults(
            root,
            &schema["items"],
            inner,
            &format!("{at}[{index}]"),
        ));
    }
    found
}
