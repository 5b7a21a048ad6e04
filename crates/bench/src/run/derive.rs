//! From what was measured to what is saved.

use airlock::Airlock;

use super::{Measured, RunOptions, SEED};
use crate::environment::Binary;
use crate::plan::LATENCY_WARM_UPS;
use crate::result::{
    Environment, Limits, RunResult, SCHEMA, SpaceFacts, latency_results, transfer_results,
};

/// guestd and image of a Space that was just made. Of an older one nobody knows whether the image
/// was built anew since.
pub(super) fn space_binaries(airlock: &Airlock, options: &RunOptions) -> Vec<Binary> {
    if options.space.is_some() {
        return Vec::new();
    }
    let Ok(image) = airlock.images().get(&options.image) else {
        return Vec::new();
    };
    let binary = |name: String, sha256| Binary { name, sha256 };
    vec![
        binary("guestd".to_owned(), image.guestd_sha256),
        binary(
            format!("image {} (kernel {})", image.name, image.kernel_version),
            image.digest,
        ),
    ]
}

/// The saved form of a run.
pub(super) fn derive(
    options: &RunOptions,
    measured: &Measured,
    duration_seconds: f64,
) -> RunResult {
    let info = &measured.info;
    let limits = Limits::of(measured.measurements.rates.clone());
    let samples = &measured.measurements.samples;
    RunResult {
        schema: SCHEMA.to_owned(),
        started_at: format!("{:.0}", options.started_at),
        duration_seconds,
        command: command(options),
        plan: options.plan.clone(),
        seed: SEED,
        environment: Environment {
            host: measured.host.clone(),
            software: options.software.clone(),
            space: SpaceFacts {
                made_for_this_run: options.space.is_none(),
                image: info.image.clone(),
                kind: info.kind,
                runtime: info.runtime,
                accel: info.accel,
                accel_reason: info.accel_reason.clone(),
                cpus: info.cpus,
                memory_mb: info.memory_mb,
                disk_gb: info.disk_gb,
                network: info.network,
                boot_ms: info.boot_ms,
            },
            load_before: measured.load_before,
            load_after: measured.load_after,
        },
        latencies: latency_results(samples),
        transfers: transfer_results(samples, &options.plan, &limits),
        limits,
    }
}

/// The command line of the same run, without what only concerns this machine.
fn command(options: &RunOptions) -> String {
    let which = match &options.space {
        Some(name) => format!("--space {name}"),
        None => format!("--image {}", options.image),
    };
    let files: Vec<String> = options
        .plan
        .files
        .as_slice()
        .iter()
        .map(|file| format!("{}:{}", file.size_mib, file.iterations))
        .collect();
    debug_assert_eq!(
        options.plan.latency_warm_ups, LATENCY_WARM_UPS,
        "no flag sets it"
    );
    format!(
        "airlock bench run file-transfer {which} --files {} --iters {}",
        files.join(","),
        options.plan.latency_iterations
    )
}

#[cfg(test)]
mod tests {
    use airlock_model::{ImageName, SpaceName};
    use jiff::Timestamp;

    use super::*;
    use crate::environment::Software;
    use crate::plan::Plan;

    #[test]
    fn the_command_says_all_that_can_be_chosen() {
        let mut options = RunOptions {
            space: None,
            image: ImageName::new("tiny").unwrap(),
            plan: Plan {
                files: "1:2,16:1".parse().unwrap(),
                ..Plan::default()
            },
            out: "somewhere".into(),
            started_at: Timestamp::UNIX_EPOCH,
            software: Software::capture("0"),
        };
        let rest = "--files 1:2,16:1 --iters 300";
        assert_eq!(
            command(&options),
            format!("airlock bench run file-transfer --image tiny {rest}")
        );
        options.space = Some(SpaceName::new("web").unwrap());
        assert_eq!(
            command(&options),
            format!("airlock bench run file-transfer --space web {rest}")
        );
    }
}
