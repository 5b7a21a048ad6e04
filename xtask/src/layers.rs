//! `cargo xtask layers`: crates depend on each other one way only.
//!
//! `cli, bench, daemon -> client -> engine -> keeper -> qemu, image, lane -> digest, model` and
//! `guestd -> wire, lane`. `client, keeper, engine, daemon` may use `wire`; all may use `model`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};

use crate::run::{cargo, output, say};

/// Which of our crates each of our crates may use; `model` may be used by all.
const ALLOWED: &[(&str, &[&str])] = &[
    ("airlock-model", &[]),
    ("airlock-digest", &[]),
    ("airlock-wire", &[]),
    ("airlock-lane", &["airlock-digest"]),
    ("airlock-process", &[]),
    ("airlock-netlink", &[]),
    ("airlock-net", &["airlock-process"]),
    ("airlock-qemu", &["airlock-process"]),
    ("airlock-oci", &["airlock-process", "airlock-netlink"]),
    ("airlock-image", &["airlock-digest"]),
    (
        "airlock-keeper",
        &[
            "airlock-qemu",
            "airlock-net",
            "airlock-oci",
            "airlock-process",
            "airlock-image",
            "airlock-lane",
            "airlock-digest",
            "airlock-wire",
        ],
    ),
    (
        "airlock-engine",
        &[
            "airlock-keeper",
            "airlock-image",
            "airlock-qemu",
            "airlock-net",
            "airlock-oci",
            "airlock-process",
            "airlock-wire",
        ],
    ),
    (
        "airlock-guestd",
        &[
            "airlock-wire",
            "airlock-lane",
            "airlock-netlink",
            "airlock-digest",
        ],
    ),
    (
        "airlock",
        &[
            "airlock-engine",
            "airlock-lane",
            "airlock-digest",
            "airlock-wire",
        ],
    ),
    ("airlock-bench", &["airlock", "airlock-digest"]),
    ("airlock-cli", &["airlock", "airlock-bench"]),
    // Not shipped: may use anything it tests or needs.
    ("airlock-e2e", &["*"]),
    ("xtask", &["airlock-image"]),
];

/// Crates that build without gRPC.
const WITHOUT_TONIC: &[&str] = &[
    "airlock-lane",
    "airlock-process",
    "airlock-net",
    "airlock-netlink",
    "airlock-qemu",
    "airlock-oci",
    "airlock-model",
    "airlock-digest",
];

/// Fails on any edge that the layout does not allow.
pub(crate) fn check(root: &Path) -> Result<()> {
    let text = output(cargo(root).args(["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&text)?;
    let wrong = violations(&metadata);
    if !wrong.is_empty() {
        bail!(
            "dependencies that the layout does not allow:\n  {}",
            wrong.join("\n  ")
        );
    }
    say("layers: every dependency goes the right way");
    Ok(())
}

fn violations(metadata: &serde_json::Value) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(allowed) = allowed.get(name) else {
            wrong.push(format!(
                "{name} has no place in the layout; add it to ALLOWED"
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            // Tests may use what they like.
            if dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            if WITHOUT_TONIC.contains(&name) && used.starts_with("tonic") {
                wrong.push(format!("{name} -> {used}"));
            }
            let ours = used == "airlock" || used.starts_with("airlock-");
            let fine = used == "airlock-model" || allowed.contains(&used) || allowed == &["*"];
            if ours && !fine {
                wrong.push(format!("{name} -> {used}"));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, kind: Option<&str>, dependency: &str) -> serde_json::Value {
        serde_json::json!({"packages": [{
            "name": name, "dependencies": [{"name": dependency, "kind": kind}]
        }]})
    }

    #[test]
    fn an_edge_against_the_layout_is_found() {
        assert_eq!(
            violations(&package("airlock-lane", None, "airlock-keeper")),
            ["airlock-lane -> airlock-keeper"]
        );
        assert_eq!(
            violations(&package("airlock-qemu", None, "tonic")),
            ["airlock-qemu -> tonic"]
        );
        assert_eq!(violations(&package("airlock-new", None, "serde")).len(), 1);
    }

    #[test]
    fn edges_of_the_layout_and_of_tests_are_fine() {
        assert!(violations(&package("airlock-lane", None, "airlock-digest")).is_empty());
        assert!(violations(&package("airlock-lane", Some("dev"), "airlock-keeper")).is_empty());
    }
}
