//! `report.md` and the tables of `rollout`, rendered from saved results and nothing else.

use super::result::{Metric, RolloutResult};
use crate::report::table::{Align, Table};
use crate::report::words::{caveats, environment, space_line};
use crate::report::{latency_row, missing, push};

/// Below this many samples p95 is no more than the largest of them.
const FEW_SAMPLES: u32 = 20;

/// The table of one result, readable as text and as Markdown.
pub fn table(result: &RolloutResult) -> String {
    let mut table = Table::new(&[
        ("ms", Align::Left),
        ("n", Align::Right),
        ("p50", Align::Right),
        ("p95", Align::Right),
        ("p99", Align::Right),
        ("min", Align::Right),
        ("max", Align::Right),
    ]);
    for metric in &result.metrics {
        table.row(latency_row(&name(metric.metric, result), metric.ms));
    }
    let results = std::slice::from_ref(result);
    format!("{table}{}", failures(results))
}

/// The one table of several results, with a column group for each.
pub fn comparison_table(results: &[RolloutResult]) -> String {
    let heads: Vec<String> = results
        .iter()
        .map(|result| format!("{} p50", result.environment.space.kind))
        .collect();
    let mut columns = vec![("ms", Align::Left)];
    for head in &heads {
        columns.extend([
            (head.as_str(), Align::Right),
            ("p95", Align::Right),
            ("n", Align::Right),
        ]);
    }
    let mut table = Table::new(&columns);
    for metric in Metric::ALL {
        let Some(first) = results.first() else {
            continue;
        };
        if metric == Metric::CreateTogether && first.plan.batches == 0 {
            continue;
        }
        let mut row = vec![name(metric, first)];
        for result in results {
            match result.metric(metric) {
                Some(found) => row.extend([
                    format!("{:.1}", found.ms.p50),
                    format!("{:.1}", found.ms.p95),
                    found.ms.n.to_string(),
                ]),
                None => row.extend([missing(), missing(), "0".to_owned()]),
            }
        }
        table.row(row);
    }
    format!("{table}{}", failures(results))
}

fn name(metric: Metric, result: &RolloutResult) -> String {
    match metric {
        Metric::CreateToExec => "create to first exec".to_owned(),
        Metric::Stop => "stop".to_owned(),
        Metric::StartToExec => "start to first exec".to_owned(),
        Metric::Delete => "delete".to_owned(),
        Metric::CreateTogether => {
            let count = result.plan.batch_size;
            format!("{count} creates at once, to the last first exec")
        }
    }
}

/// One line for each batch that failed, after an empty one; nothing where none did.
fn failures(results: &[RolloutResult]) -> String {
    let mut out = String::new();
    for result in results {
        for failure in &result.failures {
            if out.is_empty() {
                out.push('\n');
            }
            push(
                &mut out,
                format_args!(
                    "- {}: {} failed at its {}. time: {}",
                    result.environment.space.kind,
                    name(failure.metric, result),
                    failure.iteration + 1,
                    failure.reason
                ),
            );
        }
    }
    out
}

/// The report of one result, or that which compares several, in Markdown.
pub(super) fn markdown(results: &[RolloutResult]) -> String {
    let mut out = String::from("# How soon a Space is there, and gone\n\n");
    let [first, others @ ..] = results else {
        return out;
    };
    push(
        &mut out,
        format_args!(
            "{} · {} · {} CPUs · Airlock {}\n\n## Results\n",
            first.started_at,
            first.environment.host.cpu_model,
            first.environment.host.cpus,
            first.environment.software.airlock_version,
        ),
    );
    let shown = if others.is_empty() {
        table(first)
    } else {
        comparison_table(results)
    };
    push(&mut out, format_args!("{shown}"));
    push(
        &mut out,
        format_args!("{}", method(first, !others.is_empty())),
    );
    if others.is_empty() {
        push(
            &mut out,
            format_args!("{}\n## Caveats\n", environment(&first.environment)),
        );
        let few = first.plan.iterations < FEW_SAMPLES;
        let lean = few.then(|| {
            format!("With fewer than {FEW_SAMPLES} samples p95 and p99 lean on the largest one.")
        });
        for caveat in caveats(&first.environment).into_iter().chain(lean) {
            push(&mut out, format_args!("- {caveat}"));
        }
    } else {
        push(&mut out, format_args!("## Spaces\n"));
        for result in results {
            let space = &result.environment.space;
            push(&mut out, format_args!("- {}", space_line(space)));
            for protection in &space.protection {
                push(&mut out, format_args!("  - {protection}"));
            }
        }
        push(
            &mut out,
            format_args!("\nSpread, environment and caveats of each:\n"),
        );
        for result in results {
            let kind = result.environment.space.kind;
            push(
                &mut out,
                format_args!("- [{kind}/report.md]({kind}/report.md)"),
            );
        }
    }
    push(
        &mut out,
        format_args!("\n## How to reproduce\n\n```\n{}\n```", first.command),
    );
    out
}

fn method(result: &RolloutResult, compares: bool) -> String {
    let plan = &result.plan;
    let mut out = format!(
        "## Method\n\n\
         - {} Spaces, one after the other, after a warm-up that is not counted and leaves the image \
         in place: each is made, stopped, started and deleted.\n\
         - A time runs from the call of the SDK until it is done; create and start end when the \
         Space has run `true`, connecting included.\n\
         - {} times {} Spaces are made at once; the time ends when the last has run `true`.\n\
         - Percentiles are linearly interpolated between the nearest ranks.\n",
        plan.iterations, plan.batches, plan.batch_size
    );
    if compares {
        out.push_str("- The kinds took turns, Space by Space and batch by batch.\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use airlock_model::Kind;

    use super::super::result::Failure;
    use super::super::result::tests::sample_rollout;
    use super::*;

    fn both() -> [RolloutResult; 2] {
        [Kind::Container, Kind::Vm].map(sample_rollout)
    }

    #[test]
    fn the_comparison_is_as_published() {
        let expected = "\
| ms                                        | container p50 |   p95 |   n |  vm p50 |     p95 |   n |
|-------------------------------------------|--------------:|------:|----:|--------:|--------:|----:|
| create to first exec                      |         100.5 | 100.9 |   2 |  5025.0 |  5047.5 |   2 |
| stop                                      |         200.5 | 200.9 |   2 | 10025.0 | 10047.5 |   2 |
| start to first exec                       |         300.5 | 300.9 |   2 | 15025.0 | 15047.5 |   2 |
| delete                                    |         400.5 | 400.9 |   2 | 20025.0 | 20047.5 |   2 |
| 8 creates at once, to the last first exec |         500.0 | 500.0 |   1 | 25000.0 | 25000.0 |   1 |
";
        assert_eq!(comparison_table(&both()), expected);
    }

    #[test]
    fn a_failed_batch_is_a_dash_and_a_line() {
        let mut results = both();
        results[1].metrics.pop();
        results[1].failures.push(Failure {
            metric: Metric::CreateTogether,
            iteration: 0,
            reason: "no answer within 60 s".into(),
        });
        let text = comparison_table(&results);
        assert!(text.contains("|       - |       - |   0 |"), "{text}");
        assert!(
            text.ends_with(
                "\n\n- vm: 8 creates at once, to the last first exec failed at its 1. time: \
                 no answer within 60 s\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn one_result_has_its_whole_spread_and_environment() {
        let text = markdown(&[sample_rollout(Kind::Container)]);
        for wanted in [
            "| create to first exec",
            "p99",
            "## Method",
            "## Environment",
            "- Protection: seccomp: yes",
            "fewer than 20 samples",
            "## How to reproduce",
        ] {
            assert!(text.contains(wanted), "{wanted:?} is missing:\n{text}");
        }
        let text = markdown(&both());
        for wanted in ["took turns", "](vm/report.md)", "linux container by runc"] {
            assert!(text.contains(wanted), "{wanted:?} is missing:\n{text}");
        }
    }
}
