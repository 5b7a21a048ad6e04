//! Benchmarks of Airlock: targets, schedule, samples, statistics and reports
