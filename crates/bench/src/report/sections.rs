//! The sections of the report that explain the figures.

use super::table::{Align, Table};
use super::{missing, percent, push, rate, words};
use crate::result::RunResult;

/// Below this many samples p99 is no more than the largest of them.
const FEW_SAMPLES: usize = 20;

/// What was measured of the processors, and what share of the copy limit was reached.
pub(super) fn limit_lines(result: &RunResult) -> String {
    let mut out = String::from("## What bounds it\n\n");
    let mut table = Table::new(&[
        ("measured", Align::Left),
        ("SHA-256, 1 CPU", Align::Right),
        ("all CPUs", Align::Right),
        ("copy, 1 CPU", Align::Right),
        ("implementation", Align::Left),
    ]);
    for (when, rates) in ["before", "after"].iter().zip(&result.limits.measured) {
        table.row(vec![
            format!("in the Space, {when}"),
            rate(rates.sha256_mib_s),
            rate(rates.sha256_all_mib_s),
            rate(rates.copy_mib_s),
            rates.sha256_name.clone(),
        ]);
    }
    for (when, rates) in ["before", "after"].iter().zip(&result.limits.host_measured) {
        table.row(vec![
            format!("on the host, {when}"),
            rate(rates.sha256_mib_s),
            missing(),
            rate(rates.copy_mib_s),
            rates.sha256_name.clone(),
        ]);
    }
    push(&mut out, format_args!("{table}"));
    push(
        &mut out,
        format_args!("In MiB/s. As a fraction of the copy limit:\n"),
    );
    for transfer in &result.transfers {
        let share = transfer.of_copy_limit.map_or_else(missing, percent);
        let size_mib = transfer.size_bytes / airlock_model::size::MIB;
        let direction = transfer.direction.as_str();
        push(
            &mut out,
            format_args!("- {direction} of {size_mib} MiB: {share}"),
        );
    }
    out
}

/// How the figures came about.
pub(super) fn method(result: &RunResult) -> String {
    let plan = &result.plan;
    format!(
        "## Method\n\n\
         - {} serial round trips of each latency metric after {} warm-ups, whose times are dropped.\n\
         - Each file is sent up and down in turn after one warm-up each way. A time runs from the \
         call of the SDK to its receipt, so it includes opening, hashing at both ends, verifying and \
         publishing by rename.\n\
         - Every transfer makes a new file; the one before is removed first, outside the time.\n\
         - The content is pseudorandom (seed {}), so nothing can be compressed; the first file of \
         each size that came back was compared byte for byte.\n\
         - Uploads read from the host's page cache. Neither side waits for the disk (no fsync).\n\
         - Percentiles are linearly interpolated between the nearest ranks.\n",
        plan.latency_iterations, plan.latency_warm_ups, result.seed
    )
}

/// What a reader must know before quoting a figure.
pub(super) fn caveats(result: &RunResult) -> Vec<String> {
    let environment = &result.environment;
    let mut caveats = words::caveats(environment);
    let few = |n: usize| n < FEW_SAMPLES;
    if result.transfers.iter().any(|t| few(t.ms.n)) || result.latencies.iter().any(|l| few(l.ms.n))
    {
        caveats.push(format!(
            "With fewer than {FEW_SAMPLES} samples p95 and p99 lean on the largest one."
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
