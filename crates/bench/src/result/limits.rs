//! What bounds a verified transfer, and by which formula.
//!
//! Every byte is hashed once at each end. A VM has processors of its own, slower ones where they
//! are emulated, so its end is the bound: its CPUs times the rate of one. A container shares the
//! host's cores with the other end, so both ends together are the bound: the cores times the rate
//! of one, by two.

use airlock_model::Kind;
use serde::{Deserialize, Serialize};

use crate::stats::Summary;

/// One measurement of what the Space's processors can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestRates {
    /// CPUs of the Space.
    pub cpus: u32,
    /// The fastest SHA-256 there on one CPU, MiB/s.
    pub sha256_mib_s: f64,
    /// Which one that is.
    pub sha256_name: String,
    /// SHA-256 on all CPUs at once, MiB/s.
    pub sha256_all_mib_s: f64,
    /// Copying memory to memory on one CPU, MiB/s.
    pub copy_mib_s: f64,
    /// Times of a bare `posix_spawn` of `true` and its wait, milliseconds.
    pub spawn_ms: Vec<f64>,
}

/// One measurement of what one core of the host can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostRates {
    /// The fastest SHA-256 there, MiB/s.
    pub sha256_mib_s: f64,
    /// Which one that is.
    pub sha256_name: String,
    /// Copying memory to memory, MiB/s.
    pub copy_mib_s: f64,
}

/// How a limit follows from the rate of one core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Formula {
    /// CPUs of the Space times its best rate on one of them.
    SpaceCpus,
    /// Cores that both ends share times the best rate on one of them, by two.
    SharedCores,
}

impl Formula {
    /// The formula for a Space of this kind.
    pub const fn of(kind: Kind) -> Self {
        match kind {
            // A Space's kind is decided when it is made; those of older versions are VMs.
            Kind::Auto | Kind::Vm => Self::SpaceCpus,
            Kind::Container => Self::SharedCores,
        }
    }

    fn limit(self, cores: u32, rate_mib_s: f64) -> f64 {
        let all = f64::from(cores) * rate_mib_s;
        match self {
            Self::SpaceCpus => all,
            Self::SharedCores => all / 2.0,
        }
    }
}

/// The processors of the host and of the Space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processors {
    /// What the Space is.
    pub kind: Kind,
    /// CPUs that it was given.
    pub space_cpus: u32,
    /// Processors that the host's programs may use; 0 where unknown.
    pub host_cpus: usize,
}

/// What bounds a verified transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// How the two limits were derived.
    pub formula: Formula,
    /// The cores in it.
    pub cores: u32,
    /// The best SHA-256 rate on one of them, MiB/s; 0 when unknown.
    pub sha256_one_core_mib_s: f64,
    /// What hashing allows, MiB/s; 0 when unknown.
    pub sha256_mib_s: f64,
    /// What copying memory to memory allows, MiB/s; 0 when unknown.
    pub copy_mib_s: f64,
    /// A bare `posix_spawn` of `true` in the Space, milliseconds.
    pub spawn_ms: Option<Summary>,
    /// Rates of the Space: before and after the transfers.
    pub measured: Vec<GuestRates>,
    /// Rates of the host: before and after the transfers.
    pub host_measured: Vec<HostRates>,
}

impl Limits {
    /// The limits by these measurements. The best rate counts, so that noise never flatters a
    /// fraction of a limit; on shared cores the host's own counts too, which saw no container.
    pub fn of(
        processors: Processors,
        measured: Vec<GuestRates>,
        host_measured: Vec<HostRates>,
    ) -> Self {
        let formula = Formula::of(processors.kind);
        let best = |guest: fn(&GuestRates) -> f64, host: fn(&HostRates) -> f64| {
            let in_space = measured.iter().map(guest).fold(0.0, f64::max);
            match formula {
                Formula::SpaceCpus => in_space,
                Formula::SharedCores => host_measured.iter().map(host).fold(in_space, f64::max),
            }
        };
        let cores = match formula {
            Formula::SpaceCpus => measured
                .iter()
                .map(|rates| rates.cpus)
                .max()
                .unwrap_or(processors.space_cpus),
            Formula::SharedCores => match u32::try_from(processors.host_cpus) {
                Ok(0) | Err(_) => processors.space_cpus,
                Ok(host_cpus) => host_cpus.min(processors.space_cpus),
            },
        };
        let sha256 = best(|rates| rates.sha256_mib_s, |rates| rates.sha256_mib_s);
        let copy = best(|rates| rates.copy_mib_s, |rates| rates.copy_mib_s);
        let spawns: Vec<f64> = measured
            .iter()
            .flat_map(|rates| rates.spawn_ms.iter().copied())
            .collect();
        Self {
            formula,
            cores,
            sha256_one_core_mib_s: sha256,
            sha256_mib_s: formula.limit(cores, sha256),
            copy_mib_s: formula.limit(cores, copy),
            spawn_ms: Summary::of(&spawns),
            measured,
            host_measured,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(sha256_mib_s: f64) -> GuestRates {
        GuestRates {
            cpus: 2,
            sha256_mib_s,
            sha256_name: "x".into(),
            sha256_all_mib_s: 1.0,
            copy_mib_s: 10.0 * sha256_mib_s,
            spawn_ms: vec![1.0],
        }
    }

    fn host(sha256_mib_s: f64) -> HostRates {
        HostRates {
            sha256_mib_s,
            sha256_name: "y".into(),
            copy_mib_s: 10.0 * sha256_mib_s,
        }
    }

    fn limits(kind: Kind, space_cpus: u32, host_cpus: usize) -> Limits {
        let processors = Processors {
            kind,
            space_cpus,
            host_cpus,
        };
        let (space, native) = (vec![guest(900.0), guest(1000.0)], vec![host(1200.0)]);
        Limits::of(processors, space, native)
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }

    #[test]
    fn a_vm_is_bound_by_its_own_cpus_alone() {
        let limits = limits(Kind::Vm, 2, 8);
        assert_eq!((limits.formula, limits.cores), (Formula::SpaceCpus, 2));
        near(limits.sha256_one_core_mib_s, 1000.0);
        near(limits.sha256_mib_s, 2000.0);
        near(limits.copy_mib_s, 20_000.0);
    }

    #[test]
    fn both_ends_of_a_container_share_the_cores() {
        for (space_cpus, host_cpus, cores) in [(2, 8, 2), (4, 2, 2), (1, 2, 1), (3, 0, 3)] {
            let limits = limits(Kind::Container, space_cpus, host_cpus);
            assert_eq!(
                (limits.formula, limits.cores),
                (Formula::SharedCores, cores)
            );
            near(limits.sha256_one_core_mib_s, 1200.0);
            near(limits.sha256_mib_s, f64::from(cores) * 600.0);
            near(limits.copy_mib_s, f64::from(cores) * 6000.0);
        }
    }

    #[test]
    fn nothing_measured_is_no_limit() {
        let processors = Processors {
            kind: Kind::Container,
            space_cpus: 2,
            host_cpus: 2,
        };
        let limits = Limits::of(processors, vec![], vec![]);
        near(limits.sha256_mib_s, 0.0);
        assert_eq!(limits.spawn_ms, None);
    }
}
