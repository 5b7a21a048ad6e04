//! Percentiles of samples.
//!
//! A percentile is linearly interpolated between the two nearest ranks: for `n` sorted samples
//! the quantile `q` lies at rank `q * (n - 1)`, counted from 0 (method 7 of Hyndman and Fan,
//! "Sample Quantiles in Statistical Packages", 1996; the default of R and `NumPy`). With few
//! samples p95 and p99 lean on the largest one, so [`Summary::n`] always stands beside them.

use serde::{Deserialize, Serialize};

/// What is said of one series of samples, in the unit of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many samples there are.
    pub n: usize,
    /// The smallest.
    pub min: f64,
    /// The median.
    pub p50: f64,
    /// 95 % are at most this.
    pub p95: f64,
    /// 99 % are at most this.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Summarises the samples, or `None` when there is none or one is not a number.
    pub fn of(samples: &[f64]) -> Option<Self> {
        if samples.is_empty() || samples.iter().any(|sample| !sample.is_finite()) {
            return None;
        }
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            n: sorted.len(),
            min: sorted[0],
            p50: quantile(&sorted, 0.50),
            p95: quantile(&sorted, 0.95),
            p99: quantile(&sorted, 0.99),
            max: sorted[sorted.len() - 1],
        })
    }
}

/// The quantile `q` (0 to 1) of samples that are sorted and not empty.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = q * (sorted.len() - 1) as f64;
    #[expect(
        clippy::cast_sign_loss,
        reason = "a rank is between 0 and the number of samples"
    )]
    let below = rank.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    let share = rank - below as f64;
    // This form, unlike `a + (b - a) * share`, never leaves the range between the two.
    (sorted[below] * (1.0 - share) + sorted[above] * share).clamp(sorted[below], sorted[above])
}

/// MiB/s of `size_bytes` in `ms`.
pub fn mib_per_second(size_bytes: u64, ms: f64) -> f64 {
    size_bytes as f64 / airlock_model::size::MIB as f64 / (ms / 1000.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same definition from the other side: walk the knots `i / (n - 1)` and interpolate on
    /// the piece that holds `q`. Selects by counting, not by sorting.
    fn naive_quantile(samples: &[f64], q: f64) -> f64 {
        let n = samples.len();
        let by_rank = |rank: usize| {
            samples
                .iter()
                .copied()
                .find(|candidate| {
                    let smaller = samples.iter().filter(|other| *other < candidate).count();
                    let larger = samples.iter().filter(|other| *other > candidate).count();
                    (smaller..n - larger).contains(&rank)
                })
                .unwrap()
        };
        if n == 1 {
            return samples[0];
        }
        for i in 0..n - 1 {
            let left = i as f64 / (n - 1) as f64;
            let right = (i + 1) as f64 / (n - 1) as f64;
            if q <= right || i == n - 2 {
                let share = (q - left) / (right - left);
                return by_rank(i) + (by_rank(i + 1) - by_rank(i)) * share;
            }
        }
        unreachable!("the last piece always matches")
    }

    proptest! {
        #[test]
        fn agrees_with_the_naive_implementation(
            samples in prop::collection::vec(0.001_f64..10_000.0, 1..60),
        ) {
            let summary = Summary::of(&samples).unwrap();
            for (q, found) in [(0.5, summary.p50), (0.95, summary.p95), (0.99, summary.p99)] {
                let expected = naive_quantile(&samples, q);
                prop_assert!((found - expected).abs() <= 1e-6 * expected.abs(), "{found} {expected}");
            }
        }

        #[test]
        fn is_ordered_and_within_the_samples(
            samples in prop::collection::vec(-1e6_f64..1e6, 1..60),
        ) {
            let s = Summary::of(&samples).unwrap();
            prop_assert!(s.min <= s.p50 && s.p50 <= s.p95 && s.p95 <= s.p99 && s.p99 <= s.max);
            prop_assert!(samples.contains(&s.min) && samples.contains(&s.max));
        }

        #[test]
        fn does_not_depend_on_the_order(
            samples in prop::collection::vec(0.0_f64..1e3, 1..40).prop_shuffle(),
        ) {
            let mut reversed = samples.clone();
            reversed.reverse();
            prop_assert_eq!(Summary::of(&samples), Summary::of(&reversed));
        }
    }

    #[test]
    fn known_values() {
        // numpy.percentile([1, 2, 3, 4], [50, 95, 99]) = [2.5, 3.85, 3.97]
        let s = Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert!((s.p50 - 2.5).abs() < 1e-12);
        assert!((s.p95 - 3.85).abs() < 1e-12);
        assert!((s.p99 - 3.97).abs() < 1e-12);
        assert_eq!((s.n, s.min, s.max), (4, 1.0, 4.0));
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
        assert_eq!(Summary::of(&[f64::INFINITY]), None);
    }

    #[test]
    fn rates_are_in_mib() {
        assert!((mib_per_second(100 * 1024 * 1024, 1000.0) - 100.0).abs() < 1e-9);
    }
}
