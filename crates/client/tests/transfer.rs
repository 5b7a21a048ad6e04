//! Transfers between this process and a guestd in it: the real service over loopback, the real
//! lane as shared memory.

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
#[path = "transfer/sizes.rs"]
mod sizes;
#[path = "transfer/special.rs"]
mod special;
