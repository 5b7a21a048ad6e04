//! The results of several kinds of Space from one run, side by side.

use super::table::{Align, Table};
use super::words::{limit_formula, space_line};
use super::{missing, percent, push, rate};
use crate::result::RunResult;
use crate::samples::{Direction, Latency};

/// The one table, with a column pair for each result, and what must be known to read it.
pub fn table(results: &[RunResult]) -> String {
    let heads: Vec<&str> = results
        .iter()
        .map(|result| result.environment.space.kind.as_str())
        .collect();
    let mut columns = vec![("median", Align::Left), ("unit", Align::Left)];
    for head in heads {
        columns.extend([(head, Align::Right), ("of limit", Align::Right)]);
    }
    let mut table = Table::new(&columns);
    for (size_bytes, direction) in sizes(results) {
        let word = match direction {
            Direction::Upload => "up",
            Direction::Download => "down",
        };
        let size_mib = size_bytes / airlock_model::size::MIB;
        let mut row = vec![format!("{word}, {size_mib} MiB"), "MiB/s".to_owned()];
        for result in results {
            let found = result.transfers.iter().find(|transfer| {
                transfer.size_bytes == size_bytes && transfer.direction == direction
            });
            row.push(found.map_or_else(missing, |transfer| rate(transfer.mib_s_p50)));
            row.push(
                found
                    .and_then(|transfer| transfer.of_sha256_limit)
                    .map_or_else(missing, percent),
            );
        }
        table.row(row);
    }
    let mut times = |name: &str, ms: &dyn Fn(&RunResult) -> Option<f64>| {
        let mut row = vec![name.to_owned(), "ms".to_owned()];
        for result in results {
            let shown = ms(result).map_or_else(missing, |ms| format!("{ms:.2}"));
            row.extend([shown, String::new()]);
        }
        table.row(row);
    };
    for metric in Latency::ALL {
        times(metric.as_str(), &|result| {
            let found = result.latencies.iter().find(|l| l.metric == metric)?;
            Some(found.ms.p50)
        });
    }
    times("posix_spawn of true in the Space", &|result| {
        Some(result.limits.spawn_ms?.p50)
    });
    times("exec_true minus posix_spawn", &|result| {
        result.exec_minus_spawn_ms
    });
    format!("{table}\n{}", notes(results))
}

/// Every size and direction that was measured, in the order of the plan.
fn sizes(results: &[RunResult]) -> impl Iterator<Item = (u64, Direction)> {
    let plan = results.first().map(|result| &result.plan);
    let files = plan.map_or(&[][..], |plan| plan.files.as_slice());
    files.iter().flat_map(|file| {
        [Direction::Upload, Direction::Download].map(|direction| (file.size_bytes(), direction))
    })
}

/// One line for each result on its limit, and one where not everything took the lane.
fn notes(results: &[RunResult]) -> String {
    let mut out = String::new();
    for result in results {
        let kind = result.environment.space.kind;
        push(
            &mut out,
            format_args!("- {kind}: the limit is {}", limit_formula(&result.limits)),
        );
        let (mut network, mut all) = (0, 0);
        for (route, count) in result.transfers.iter().flat_map(|t| &t.routes) {
            all += count;
            if route == airlock_model::Route::Network.as_str() {
                network += count;
            }
        }
        if network > 0 {
            push(
                &mut out,
                format_args!("- {kind}: {network} of {all} transfers did not take the lane"),
            );
        }
    }
    out
}

/// The whole comparison in Markdown.
pub fn markdown(results: &[RunResult]) -> String {
    let mut out = String::from("# File transfer into and out of Spaces, side by side\n\n");
    let Some(first) = results.first() else {
        return out;
    };
    let environment = &first.environment;
    push(
        &mut out,
        format_args!(
            "{} · {} · {} CPUs · Airlock {}\n",
            first.started_at,
            environment.host.cpu_model,
            environment.host.cpus,
            environment.software.airlock_version,
        ),
    );
    push(&mut out, format_args!("## Results\n\n{}", table(results)));
    push(
        &mut out,
        format_args!(
            "MiB/s is the size divided by the median time, ms is the median. Every row was measured \
             in one run: the Spaces lived side by side, and for each size they took turns round by \
             round, for each latency metric series by series.\n\n## Spaces\n",
        ),
    );
    for result in results {
        let space = &result.environment.space;
        push(&mut out, format_args!("- {}", space_line(space)));
        for protection in &space.protection {
            push(&mut out, format_args!("  - {protection}"));
        }
    }
    push(
        &mut out,
        format_args!("\nSpread, method, environment and caveats of each:\n"),
    );
    for result in results {
        let kind = result.environment.space.kind;
        push(
            &mut out,
            format_args!("- [{kind}/report.md]({kind}/report.md)"),
        );
    }
    push(
        &mut out,
        format_args!("\n## How to reproduce\n\n```\n{}\n```", first.command),
    );
    out
}

#[cfg(test)]
mod tests {
    use airlock_model::Kind;

    use super::*;
    use crate::result::tests::sample_result_of;

    fn both() -> [RunResult; 2] {
        [Kind::Container, Kind::Vm].map(sample_result_of)
    }

    #[test]
    fn the_table_is_as_published() {
        let expected = "\
| median                           | unit  | container | of limit |     vm | of limit |
|----------------------------------|-------|----------:|---------:|-------:|---------:|
| up, 1 MiB                        | MiB/s |     100.0 |     10 % |  100.0 |     83 % |
| down, 1 MiB                      | MiB/s |     100.0 |     10 % |  100.0 |     83 % |
| up, 100 MiB                      | MiB/s |     100.0 |     10 % |  100.0 |     83 % |
| down, 100 MiB                    | MiB/s |     100.0 |     10 % |  100.0 |     83 % |
| rpc_noop                         | ms    |      1.50 |          |   1.50 |          |
| exec_true                        | ms    |      1.50 |          |   1.50 |          |
| exec_sh_true                     | ms    |      1.50 |          |   1.50 |          |
| posix_spawn of true in the Space | ms    |     21.00 |          |  21.00 |          |
| exec_true minus posix_spawn      | ms    |    -19.50 |          | -19.50 |          |

- container: the limit is 1000 MiB/s: 2 cores x 1000 MiB/s / 2, because both ends hash on the same cores
- vm: the limit is 120.0 MiB/s: 2 vCPUs x 60.0 MiB/s, because its own vCPUs hash every byte
";
        assert_eq!(table(&both()), expected);
    }

    #[test]
    fn what_one_kind_lacks_is_a_dash() {
        let mut results = both();
        results[1].transfers.clear();
        results[1].exec_minus_spawn_ms = None;
        let text = table(&results);
        let row = text.lines().find(|l| l.contains("down, 100 MiB")).unwrap();
        assert!(row.ends_with("|     10 % |     - |        - |"), "{text}");
        let row = text.lines().find(|l| l.contains("minus")).unwrap();
        assert!(row.ends_with("|     - |          |"), "{text}");
    }

    #[test]
    fn a_fallback_shows() {
        let mut results = both();
        results[0].transfers[1].routes = [("lane".into(), 1), ("network".into(), 1)].into();
        let text = table(&results);
        assert!(
            text.contains("- container: 1 of 8 transfers did not take the lane"),
            "{text}"
        );
        assert!(!text.contains("- vm: 1 of"), "{text}");
    }

    #[test]
    fn the_report_says_what_the_spaces_were_and_leads_to_theirs() {
        let text = markdown(&both());
        for wanted in [
            "## Results",
            "linux container by runc",
            "no hardware runs a VM here",
            "user namespace: 65,536 ids",
            "linux vm by qemu on tcg (no guest ran on KVM)",
            "](container/report.md)",
            "](vm/report.md)",
            "took turns round by round",
            "## How to reproduce",
        ] {
            assert!(text.contains(wanted), "{wanted:?} is missing:\n{text}");
        }
    }
}
