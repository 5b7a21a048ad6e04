//! Load, memory, disk and network counters, from `/proc` and `statvfs`.

use std::fs;
use std::path::Path;

use airlock_wire::Fault;

/// Time the CPUs have spent since boot, in the kernel's ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CpuTicks {
    total: u64,
    idle: u64,
}

impl CpuTicks {
    pub(super) fn sample() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(stat: &str) -> Self {
        let fields: Vec<u64> = stat
            .lines()
            .find_map(|line| line.strip_prefix("cpu "))
            .unwrap_or_default()
            .split_ascii_whitespace()
            // Guest time is part of user time already.
            .take(8)
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        Self {
            total: fields.iter().sum(),
            // idle and iowait
            idle: fields.iter().skip(3).take(2).sum(),
        }
    }

    /// Share of the time since `earlier` in which the CPUs worked.
    pub(super) fn busy_percent_since(self, earlier: Self) -> f64 {
        let total = self.total.saturating_sub(earlier.total);
        let idle = self.idle.saturating_sub(earlier.idle);
        if total == 0 {
            return 0.0;
        }
        100.0 * total.saturating_sub(idle) as f64 / total as f64
    }
}

/// The load average of the last minute.
pub(super) fn average() -> f64 {
    fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(|text| text.split_ascii_whitespace().next()?.parse().ok())
        .unwrap_or(0.0)
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) total_bytes: u64,
    pub(super) used_bytes: u64,
}

pub(super) fn memory() -> Memory {
    parse_memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default())
}

fn parse_memory(meminfo: &str) -> Memory {
    let bytes = |key: &str| {
        meminfo
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
            .and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok())
            .unwrap_or(0)
            * 1024
    };
    let total_bytes = bytes("MemTotal");
    Memory {
        total_bytes,
        used_bytes: total_bytes.saturating_sub(bytes("MemAvailable")),
    }
}

/// Total and used bytes of the file system that holds `path`.
pub(super) fn disk(path: &Path) -> Result<(u64, u64), Fault> {
    let stat =
        rustix::fs::statvfs(path).map_err(|errno| Fault::from_io(path.display(), &errno.into()))?;
    let total = stat.f_blocks * stat.f_frsize;
    Ok((total, total.saturating_sub(stat.f_bfree * stat.f_frsize)))
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
}

/// Bytes over all interfaces but the loopback.
pub(super) fn network() -> Network {
    parse_network(&fs::read_to_string("/proc/net/dev").unwrap_or_default())
}

fn parse_network(dev: &str) -> Network {
    let mut sum = Network::default();
    for line in dev.lines() {
        let Some((name, counters)) = line.split_once(':') else {
            continue;
        };
        if name.trim() == "lo" {
            continue;
        }
        let mut counters = counters
            .split_ascii_whitespace()
            .map(|field| field.parse().unwrap_or(0));
        sum.received_bytes += counters.next().unwrap_or(0);
        sum.sent_bytes += counters.nth(7).unwrap_or(0);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_counts_waiting_as_idle() {
        let earlier = CpuTicks::parse("cpu  10 0 10 70 10 0 0 0 5 5\ncpu0 1 1\n");
        let later = CpuTicks::parse("cpu  40 0 20 120 20 0 0 0 5 5\n");
        assert!((later.busy_percent_since(earlier) - 40.0).abs() < 1e-9);
        assert!(later.busy_percent_since(later).abs() < 1e-9);
        assert_eq!(CpuTicks::parse(""), CpuTicks::default());
    }

    #[test]
    fn memory_in_use_is_what_is_not_available() {
        let memory = parse_memory("MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable:   60 kB\n");
        assert_eq!(
            memory,
            Memory {
                total_bytes: 102_400,
                used_bytes: 40_960
            }
        );
    }

    #[test]
    fn the_loopback_does_not_count() {
        let dev = "Inter-|   Receive\n face |bytes\n    lo: 9 1 0 0 0 0 0 0 9 1\n  \
                   eth0:100 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n";
        let expected = Network {
            received_bytes: 100,
            sent_bytes: 7,
        };
        assert_eq!(parse_network(dev), expected);
    }

    #[test]
    fn this_machine_has_numbers() {
        assert!(memory().used_bytes > 0);
        let (total, used) = disk(Path::new("/")).unwrap();
        assert!(total >= used && used > 0);
        assert!(disk(Path::new("/does/not/exist")).is_err());
    }
}
