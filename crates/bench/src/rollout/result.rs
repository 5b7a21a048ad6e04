//! What a run of `rollout` saves: raw samples, and `result.json` derived from them.
//!
//! The format is `docs/benchmarks/schema/rollout-1.json`; it changes by the rules of
//! [`crate::result`]. `samples.csv` has the columns `metric,spaces,iteration,ms`.

use std::fmt::Write as _;

use airlock_model::Kind;
use serde::{Deserialize, Serialize};

use super::{RolloutPlan, report};
use crate::output::Saved;
use crate::result::Environment;
use crate::stats::Summary;

/// The value of `schema` in every file of this format.
pub const SCHEMA: &str = "airlock.bench.rollout/1";

/// One thing that is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// From the call that makes a Space to the end of the first `true` in it; its image is there.
    CreateToExec,
    /// An orderly stop of a running Space.
    Stop,
    /// From the call that starts a stopped Space to the end of the first `true` in it.
    StartToExec,
    /// Deleting a running Space.
    Delete,
    /// From the first of several makings at once until each of the Spaces has run `true`.
    CreateTogether,
}

impl Metric {
    /// Every one, in the order of the tables.
    pub const ALL: [Self; 5] = [
        Self::CreateToExec,
        Self::Stop,
        Self::StartToExec,
        Self::Delete,
        Self::CreateTogether,
    ];

    /// The word in CSV and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CreateToExec => "create_to_exec",
            Self::Stop => "stop",
            Self::StartToExec => "start_to_exec",
            Self::Delete => "delete",
            Self::CreateTogether => "create_together",
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// What was timed.
    pub metric: Metric,
    /// How many Spaces took part.
    pub spaces: u32,
    /// Counted from 0 for each metric; the warm-up has no row.
    pub iteration: u32,
    /// Wall-clock time in milliseconds.
    pub ms: f64,
}

/// Renders the samples as CSV; no field ever needs quotes.
pub(super) fn to_csv(samples: &[Sample]) -> String {
    let mut text = String::from("metric,spaces,iteration,ms\n");
    for sample in samples {
        let written = writeln!(
            text,
            "{},{},{},{:.4}",
            sample.metric.as_str(),
            sample.spaces,
            sample.iteration,
            sample.ms
        );
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
    text
}

/// One finished run with one kind of Space.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RolloutResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// When it began, RFC 3339 in UTC.
    pub started_at: String,
    /// How long it took, with all kinds.
    pub duration_seconds: f64,
    /// The command that does the same again.
    pub command: String,
    /// What was measured.
    pub plan: RolloutPlan,
    /// What the figures depend on; the Space is that of the warm-up.
    pub environment: Environment,
    /// One entry for each metric that has samples.
    pub metrics: Vec<MetricResult>,
    /// Batches that failed.
    pub failures: Vec<Failure>,
}

/// Statistics of one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricResult {
    /// Which.
    pub metric: Metric,
    /// How many Spaces took part in one sample.
    pub spaces: u32,
    /// Milliseconds.
    pub ms: Summary,
}

/// A batch that failed; its kind tried no further one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What was to be timed.
    pub metric: Metric,
    /// Which time, counted from 0.
    pub iteration: u32,
    /// Why there is no time.
    pub reason: String,
}

impl RolloutResult {
    /// The statistics of a metric, if it has samples.
    pub(super) fn metric(&self, wanted: Metric) -> Option<&MetricResult> {
        self.metrics.iter().find(|found| found.metric == wanted)
    }
}

impl Saved for RolloutResult {
    const BENCHMARK: &'static str = "rollout";
    const SCHEMA: &'static str = SCHEMA;

    fn kind(&self) -> Kind {
        self.environment.space.kind
    }

    fn report(&self) -> String {
        report::markdown(std::slice::from_ref(self))
    }

    fn comparison(results: &[Self]) -> String {
        report::markdown(results)
    }
}

/// Derives the statistics of every metric that has samples.
pub(super) fn metric_results(samples: &[Sample]) -> Vec<MetricResult> {
    Metric::ALL
        .into_iter()
        .filter_map(|metric| {
            let of_metric = || samples.iter().filter(move |sample| sample.metric == metric);
            let times: Vec<f64> = of_metric().map(|sample| sample.ms).collect();
            Some(MetricResult {
                metric,
                spaces: of_metric().next()?.spaces,
                ms: Summary::of(&times)?,
            })
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::result::tests::sample_result_of;
    use crate::schema_check::{committed, faults};

    /// A small run with every field set.
    pub(crate) fn sample_rollout(kind: Kind) -> RolloutResult {
        let pace = match kind {
            Kind::Auto | Kind::Vm => 50.0,
            Kind::Container => 1.0,
        };
        RolloutResult {
            schema: SCHEMA.to_owned(),
            started_at: "2025-01-02T03:04:05Z".into(),
            duration_seconds: 61.5,
            command: "airlock bench run rollout --image linux".into(),
            plan: RolloutPlan {
                iterations: 2,
                batches: 1,
                batch_size: 8,
            },
            environment: sample_result_of(kind).environment,
            metrics: metric_results(&samples(pace)),
            failures: vec![],
        }
    }

    fn samples(pace: f64) -> Vec<Sample> {
        let mut samples = Vec::new();
        for (index, metric) in Metric::ALL.into_iter().enumerate() {
            let (spaces, count) = match metric {
                Metric::CreateTogether => (8, 1),
                Metric::CreateToExec | Metric::Stop | Metric::StartToExec | Metric::Delete => {
                    (1, 2)
                }
            };
            samples.extend((0..count).map(|iteration| Sample {
                metric,
                spaces,
                iteration,
                ms: pace * (100.0 * (index + 1) as f64 + f64::from(iteration)),
            }));
        }
        samples
    }

    #[test]
    fn csv_has_one_row_for_each_sample() {
        let text = to_csv(&samples(1.0));
        assert_eq!(text.lines().count(), 1 + 9);
        assert!(text.starts_with("metric,spaces,iteration,ms\ncreate_to_exec,1,0,100.0000\n"));
        assert!(text.ends_with("create_together,8,0,500.0000\n"));
    }

    #[test]
    fn metrics_keep_apart() {
        let results = metric_results(&samples(1.0));
        assert_eq!(results.len(), 5);
        let create = &results[0];
        assert_eq!((create.metric, create.ms.n), (Metric::CreateToExec, 2));
        assert!((create.ms.p50 - 100.5).abs() < 1e-9);
        assert_eq!(results[4].spaces, 8);
        assert!(metric_results(&[]).is_empty());
    }

    #[test]
    fn words_are_the_same_in_csv_and_json() {
        for metric in Metric::ALL {
            let json = serde_json::to_string(&metric).unwrap();
            assert_eq!(json, format!("\"{}\"", metric.as_str()));
        }
    }

    #[test]
    fn a_saved_run_fits_the_committed_schema() {
        let schema = committed("schema/rollout-1.json");
        let mut result = sample_rollout(Kind::Container);
        result.failures.push(Failure {
            metric: Metric::CreateTogether,
            iteration: 0,
            reason: "no time".into(),
        });
        let value = serde_json::to_value(&result).unwrap();
        let faults = faults(&schema, &value);
        assert!(faults.is_empty(), "{faults:#?}");
        assert_eq!(schema["properties"]["schema"]["const"], SCHEMA);
        assert_eq!(
            serde_json::from_value::<RolloutResult>(value).unwrap(),
            result
        );
    }
}
