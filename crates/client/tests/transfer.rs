//! Transfers between this process and a guestd in it: the real service over loopback, the real
//! lane as shared memory.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "transfer/concurrent.rs"]
mod concurrent;
#[path = "transfer/faults.rs"]
mod faults;
#[path = "transfer/files.rs"]
mod files;
#[path = "transfer/harness.rs"]
mod harness;
#[path = "transfer/hostile.rs"]
mod hostile;
#[path = "transfer/liar.rs"]
mod liar;
#[path = "transfer/sizes.rs"]
mod sizes;
#[path = "transfer/special.rs"]
mod special;
