//! `report.md` and the final table, rendered from the saved result and nothing else.

use std::fmt::Write as _;

use crate::result::{RunResult, TransferResult};
use crate::samples::Direction;
use crate::stats::Summary;

pub mod compare;
mod sections;
pub(crate) mod table;
pub(crate) mod words;

use sections::{caveats, limit_lines, method};
use table::{Align, Table};
use words::{cpus_word, environment, limit_formula};

/// The two result tables, readable as text and as Markdown.
pub fn tables(result: &RunResult) -> String {
    format!("{}\n{}", transfer_table(result), latency_table(result))
}

/// The whole report in Markdown.
pub fn markdown(result: &RunResult) -> String {
    let mut out = String::new();
    let host = &result.environment.host;
    let space = &result.environment.space;
    let runs_on = match space.accel {
        Some(accel) => format!("{} Space on {accel}", space.kind),
        None => format!("{} Space by {}", space.kind, space.runtime),
    };
    push(
        &mut out,
        format_args!(
            "# File transfer into and out of a Space\n\n\
             {} · {} · {} {runs_on}, {} {}, {} MiB of memory · Airlock {}\n\n\
             ## Results\n",
            result.started_at,
            host.cpu_model,
            space.image,
            space.cpus,
            cpus_word(space.kind),
            space.memory_mb,
            result.environment.software.airlock_version,
        ),
    );
    push(&mut out, format_args!("{}", transfer_table(result)));
    push(
        &mut out,
        format_args!(
            "MiB/s is the size divided by the median time; p95 is the size divided by the time that \
             95 % of the transfers stay within. The limit is what hashing allows, {}. The rate is \
             the best of SHA-256 on one of them, measured in the same run.\n",
            limit_formula(&result.limits),
        ),
    );
    push(&mut out, format_args!("{}", latency_table(result)));
    if let Some(ms) = result.exec_minus_spawn_ms {
        push(
            &mut out,
            format_args!("exec_true minus a bare posix_spawn, by their medians: {ms:.2} ms.\n"),
        );
    }
    push(&mut out, format_args!("{}", limit_lines(result)));
    push(&mut out, format_args!("{}", method(result)));
    push(
        &mut out,
        format_args!("{}", environment(&result.environment)),
    );
    push(&mut out, format_args!("## Caveats\n"));
    for caveat in caveats(result) {
        push(&mut out, format_args!("- {caveat}"));
    }
    push(
        &mut out,
        format_args!(
            "\n## How to reproduce\n\n```\n{}\n```\n\n\
             `samples.csv` holds every sample, `result.json` ({}) what this page was made from.",
            result.command, result.schema
        ),
    );
    out
}

fn transfer_table(result: &RunResult) -> String {
    let mut table = Table::new(&[
        ("size", Align::Right),
        ("n", Align::Right),
        ("up MiB/s", Align::Right),
        ("p95", Align::Right),
        ("of limit", Align::Right),
        ("down MiB/s", Align::Right),
        ("p95", Align::Right),
        ("of limit", Align::Right),
        ("route", Align::Left),
    ]);
    for file in result.plan.files.as_slice() {
        let find = |direction: Direction| {
            result.transfers.iter().find(|transfer| {
                transfer.size_bytes == file.size_bytes() && transfer.direction == direction
            })
        };
        let (up, down) = (find(Direction::Upload), find(Direction::Download));
        let mut row = vec![
            format!("{} MiB", file.size_mib),
            up.or(down)
                .map_or_else(missing, |transfer| transfer.ms.n.to_string()),
        ];
        for transfer in [up, down] {
            row.push(transfer.map_or_else(missing, |t| rate(t.mib_s_p50)));
            row.push(transfer.map_or_else(missing, |t| rate(t.mib_s_p95)));
            row.push(
                transfer
                    .and_then(|t| t.of_sha256_limit)
                    .map_or_else(missing, percent),
            );
        }
        row.push(routes(up, down));
        table.row(row);
    }
    table.to_string()
}

/// One word when all went the same way; otherwise the counts, so that no fallback hides.
fn routes(up: Option<&TransferResult>, down: Option<&TransferResult>) -> String {
    let one = |transfer: &TransferResult| {
        let words: Vec<String> = match transfer.routes.len() {
            1 => transfer.routes.keys().cloned().collect(),
            _ => transfer
                .routes
                .iter()
                .map(|(route, count)| format!("{route} x{count}"))
                .collect(),
        };
        words.join(", ")
    };
    match (up.map(one), down.map(one)) {
        (Some(up), Some(down)) if up == down => up,
        (Some(up), Some(down)) => format!("up {up}; down {down}"),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => missing(),
    }
}

fn latency_table(result: &RunResult) -> String {
    let mut table = Table::new(&[
        ("ms", Align::Left),
        ("n", Align::Right),
        ("p50", Align::Right),
        ("p95", Align::Right),
        ("p99", Align::Right),
        ("min", Align::Right),
        ("max", Align::Right),
    ]);
    let rows = result
        .latencies
        .iter()
        .map(|latency| (latency.metric.as_str(), latency.ms))
        .chain(
            result
                .limits
                .spawn_ms
                .map(|spawn| ("posix_spawn of true in the Space", spawn)),
        );
    for (name, ms) in rows {
        table.row(latency_row(name, ms));
    }
    table.to_string()
}

pub(crate) fn latency_row(name: &str, ms: Summary) -> Vec<String> {
    let mut row = vec![name.to_owned(), ms.n.to_string()];
    row.extend([ms.p50, ms.p95, ms.p99, ms.min, ms.max].map(|value| format!("{value:.2}")));
    row
}

pub(crate) fn rate(mib_s: f64) -> String {
    if mib_s >= 1000.0 {
        format!("{mib_s:.0}")
    } else {
        format!("{mib_s:.1}")
    }
}

pub(crate) fn percent(fraction: f64) -> String {
    format!("{:.0} %", fraction * 100.0)
}

pub(crate) fn missing() -> String {
    "-".to_owned()
}

pub(crate) fn push(out: &mut String, line: std::fmt::Arguments<'_>) {
    let written = writeln!(out, "{line}");
    debug_assert!(written.is_ok(), "writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::{sample_result, sample_result_of};

    #[test]
    fn the_table_has_one_row_for_each_size() {
        let text = tables(&sample_result());
        let row = text.lines().find(|line| line.contains("100 MiB")).unwrap();
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        assert_eq!(
            cells,
            [
                "", "100 MiB", "2", "100.0", "100.0", "83 %", "100.0", "100.0", "83 %", "lane", ""
            ]
        );
    }

    #[test]
    fn a_fallback_shows_in_the_table_and_the_caveats() {
        let mut result = sample_result();
        result.transfers[0].routes = [("lane".into(), 1), ("network".into(), 1)].into();
        let text = markdown(&result);
        assert!(text.contains("up lane x1, network x1; down lane"), "{text}");
        assert!(text.contains("did not take the lane"), "{text}");
    }

    #[test]
    fn the_report_holds_every_section_and_the_command() {
        let result = sample_result();
        let text = markdown(&result);
        for wanted in [
            "## Results",
            "## What bounds it",
            "## Method",
            "## Environment",
            "## Caveats",
            "## How to reproduce",
            &result.command,
            "software emulation",
            "fewer than 20 samples",
            "no guest ran on KVM",
        ] {
            assert!(text.contains(wanted), "{wanted:?} is missing:\n{text}");
        }
    }

    #[test]
    fn a_container_has_its_own_words_and_formula() {
        let text = markdown(&sample_result_of(airlock_model::Kind::Container));
        for wanted in [
            "linux container Space by runc, 2 CPUs",
            "1000 MiB/s: 2 cores x 1000 MiB/s / 2, because both ends hash on the same cores",
            "(no hardware runs a VM here)",
            "- Protection: user namespace: 65,536 ids",
            "on the host, before",
            "exec_true minus a bare posix_spawn",
        ] {
            assert!(text.contains(wanted), "{wanted:?} is missing:\n{text}");
        }
        assert!(!text.contains("vCPU"), "{text}");
        assert!(!text.contains("emulation"), "{text}");
    }

    #[test]
    fn an_unmeasured_limit_is_a_dash() {
        let mut result = sample_result();
        for transfer in &mut result.transfers {
            transfer.of_sha256_limit = None;
        }
        assert!(
            tables(&result).contains("|        - |"),
            "{}",
            tables(&result)
        );
    }
}
