//! Times of the wire, to and from the standard library's.

use std::time::{Duration, SystemTime};

use airlock_wire::{Fault, FaultKind};

/// Time since the Unix epoch; zero for a clock before it.
pub(crate) fn now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// A time since the epoch as the wire has it.
pub(crate) fn timestamp(since_epoch: Duration) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX),
        nanos: since_epoch.subsec_nanos().cast_signed(),
    }
}

/// A duration as the wire has it.
pub(crate) fn duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: duration.subsec_nanos().cast_signed(),
    }
}

/// A duration from the wire, which must not be negative.
pub(crate) fn from_duration(wire: &prost_types::Duration) -> Result<Duration, Fault> {
    from_parts(wire.seconds, wire.nanos)
}

/// A time since the epoch from the wire.
pub(crate) fn from_timestamp(wire: &prost_types::Timestamp) -> Result<Duration, Fault> {
    from_parts(wire.seconds, wire.nanos)
}

fn from_parts(seconds: i64, nanos: i32) -> Result<Duration, Fault> {
    match (u64::try_from(seconds), u32::try_from(nanos)) {
        (Ok(seconds), Ok(nanos)) if nanos < 1_000_000_000 => Ok(Duration::new(seconds, nanos)),
        _ => {
            let message = format!("{seconds} s and {nanos} ns is no time that can be used");
            Err(Fault::new(FaultKind::InvalidArgument, message))
        }
    }
}

/// The fault for something that this guestd cannot do.
pub(crate) fn unsupported(feature: &str) -> Fault {
    Fault::new(
        FaultKind::FeatureUnsupported,
        format!("this guestd does not support {feature}"),
    )
    .with("feature", feature)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_trip_and_nonsense_is_refused() {
        let time = Duration::new(7, 9);
        assert_eq!(from_duration(&duration(time)).unwrap(), time);
        assert_eq!(from_timestamp(&timestamp(time)).unwrap(), time);
        for (seconds, nanos) in [(-1, 0), (0, -1), (0, 1_000_000_000)] {
            assert!(from_duration(&prost_types::Duration { seconds, nanos }).is_err());
        }
    }
}
