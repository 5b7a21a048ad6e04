//! The sections of the report that explain the figures.

use super::push;
use crate::result::RunResult;

/// Below this many samples p99 is no more than the largest of them.
const FEW_SAMPLES: usize = 20;

/// How the figures came about.
pub(super) fn method(result: &RunResult) -> String {
    let plan = &result.plan;
    format!(
        "## Method\n\n\
         - {} serial round trips of each latency metric after {} warm-ups, whose times are dropped.\n\
         - Each file is sent up and down in turn after one warm-up each way. A time runs from the \
         call of the SDK to its receipt, so it includes opening, hashing at both ends, verifying and \
         publishing by rename.\n\
         - The content is pseudorandom (seed {}), so nothing can be compressed; the first file of \
         each size that came back was compared byte for byte.\n\
         - Uploads read from the host's page cache. Neither side waits for the disk (no fsync).\n\
         - Percentiles are linearly interpolated between the nearest ranks.\n",
        plan.latency_iterations, plan.latency_warm_ups, result.seed
    )
}

/// What the figures depend on.
pub(super) fn environment(result: &RunResult) -> String {
    let environment = &result.environment;
    let (host, software, space) = (&environment.host, &environment.software, &environment.space);
    let mut out = String::from("## Environment\n\n");
    let mut line = |name: &str, value: String| push(&mut out, format_args!("- {name}: {value}"));
    line(
        "Host",
        format!(
            "{}, {} CPUs ({}), {} MiB of memory, {}, {}",
            host.cpu_model,
            host.cpus,
            host.cpu_flags.join(" "),
            host.memory_mib,
            host.kernel,
            host.os
        ),
    );
    line(
        "File systems",
        format!("Spaces on {}, files on {}", host.home_fs, host.scratch_fs),
    );
    line(
        "Load average",
        format!(
            "{} before, {} after",
            loads(environment.load_before),
            loads(environment.load_after)
        ),
    );
    let accel = space.accel.map_or("unknown", |accel| accel.as_str());
    let reason = space
        .accel_reason
        .as_ref()
        .map_or_else(String::new, |reason| format!(" ({reason})"));
    line(
        "Space",
        format!(
            "{} {} by {}, accelerator {accel}{reason}, {} vCPUs, {} MiB of memory, {} GiB of disk, \
             network {}, {}",
            space.image,
            space.kind,
            space.runtime,
            space.cpus,
            space.memory_mb,
            space.disk_gb,
            space.network,
            if space.made_for_this_run {
                "made for this run"
            } else {
                "made before this run"
            }
        ),
    );
    if let Some(boot_ms) = space.boot_ms {
        line("Boot", format!("{boot_ms} ms to the first healthy answer"));
    }
    line("QEMU", software.qemu.clone());
    line("Airlock", software.airlock_version.clone());
    for binary in &software.binaries {
        line(
            &format!("SHA-256 of {}", binary.name),
            binary.sha256.clone(),
        );
    }
    out
}

/// What a reader must know before quoting a figure.
pub(super) fn caveats(result: &RunResult) -> Vec<String> {
    let environment = &result.environment;
    let mut caveats = vec!["One run on one machine; compare only runs on the same machine.".into()];
    let few = |n: usize| n < FEW_SAMPLES;
    if result.transfers.iter().any(|t| few(t.ms.n)) || result.latencies.iter().any(|l| few(l.ms.n))
    {
        caveats.push(format!(
            "With fewer than {FEW_SAMPLES} samples p95 and p99 lean on the largest one."
        ));
    }
    if environment.space.accel == Some(airlock_model::Accel::Tcg) {
        caveats.push(
            "The Space ran by software emulation (TCG); with hardware virtualisation every figure \
             is another."
                .into(),
        );
    }
    if environment.load_before[0] > environment.host.cpus as f64 / 4.0 {
        caveats.push(format!(
            "The host was busy when the run began (load {:.2}).",
            environment.load_before[0]
        ));
    }
    if !environment.space.made_for_this_run {
        caveats.push("The Space was in use before; its state is not known.".into());
    }
    if result
        .transfers
        .iter()
        .any(|t| t.routes.contains_key("network"))
    {
        caveats.push("Some transfers did not take the lane; see the route column.".into());
    }
    caveats
}

fn loads(load: [f64; 3]) -> String {
    load.map(|value| format!("{value:.2}")).join(" ")
}
