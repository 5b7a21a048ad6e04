//! From what was measured to what is saved.

use airlock::Airlock;
use airlock::image::guestd_bin;
use airlock_model::{ImageName, Kind};

use super::{Measured, MeasuredSpace, RunOptions, SEED};
use crate::environment::Binary;
use crate::plan::LATENCY_WARM_UPS;
use crate::result::{
    Environment, Limits, Processors, RunResult, SCHEMA, SpaceFacts, exec_minus_spawn_ms,
    latency_results, transfer_results,
};

/// guestd and image of a Space that was just made. Of an older one nobody knows whether the image
/// was built anew since. A VM's guestd is part of its image; a container gets the one at hand.
pub(crate) fn image_binaries(airlock: &Airlock, image: &ImageName, kind: Kind) -> Vec<Binary> {
    let Ok(image) = airlock.images().get(image) else {
        return Vec::new();
    };
    let binary = |name: String, sha256| Binary { name, sha256 };
    let guestd = |sha256| binary("guestd".to_owned(), sha256);
    match kind {
        Kind::Auto | Kind::Vm => vec![
            guestd(image.guestd_sha256),
            binary(
                format!("image {} (kernel {})", image.name, image.kernel_version),
                image.digest,
            ),
        ],
        Kind::Container => {
            let at_hand = guestd_bin::find().ok().map(|found| {
                let mut hasher = airlock_digest::FileHasher::new();
                hasher.update(&found.bytes);
                guestd(hasher.finish().to_string())
            });
            let image = binary(format!("image {}", image.name), image.digest);
            at_hand.into_iter().chain([image]).collect()
        }
    }
}

/// The saved form of what was measured in one Space of a run.
pub(super) fn derive(
    options: &RunOptions,
    measured: &Measured,
    space: &MeasuredSpace,
    duration_seconds: f64,
) -> RunResult {
    let processors = Processors {
        kind: space.info.kind,
        space_cpus: space.info.cpus,
        host_cpus: measured.host.cpus,
    };
    let rates = space.measurements.rates.clone();
    let limits = Limits::of(processors, rates, measured.host_rates.clone());
    let samples = &space.measurements.samples;
    let latencies = latency_results(samples);
    RunResult {
        schema: SCHEMA.to_owned(),
        started_at: format!("{:.0}", options.started_at),
        duration_seconds,
        command: command(options),
        plan: options.plan.clone(),
        seed: SEED,
        environment: Environment {
            host: measured.host.clone(),
            software: options.software.with(&space.binaries),
            space: SpaceFacts::of(&space.info, options.space.is_none()),
            load_before: measured.load_before,
            load_after: measured.load_after,
        },
        exec_minus_spawn_ms: exec_minus_spawn_ms(&latencies, &limits),
        latencies,
        transfers: transfer_results(samples, &options.plan, &limits),
        limits,
    }
}

/// The command line of the same run, without what only concerns this machine.
fn command(options: &RunOptions) -> String {
    let which = match &options.space {
        Some(name) => format!("--space {name}"),
        None => format!("--image {}{}", options.image, options.kinds.flags()),
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
    use airlock_model::SpaceName;
    use jiff::Timestamp;

    use super::*;
    use crate::environment::Software;
    use crate::kinds::Kinds;
    use crate::plan::Plan;

    #[test]
    fn the_command_says_all_that_can_be_chosen() {
        let mut options = RunOptions {
            space: None,
            image: ImageName::new("tiny").unwrap(),
            kinds: Kinds::default(),
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
        options.kinds = Kinds::new(vec![Kind::Container, Kind::Vm]).unwrap();
        assert_eq!(
            command(&options),
            format!(
                "airlock bench run file-transfer --image tiny --kind container --kind vm {rest}"
            )
        );
        options.space = Some(SpaceName::new("web").unwrap());
        assert_eq!(
            command(&options),
            format!("airlock bench run file-transfer --space web {rest}")
        );
    }
}
