//! The configuration carried out by the real OCI runtime of this host: as root, and once as an
//! ordinary user.
//!
//! Needs `runc`, a static busybox (package busybox-static) and, for the system calls, a C compiler
//! with a static C library. A test that lacks root, `runc` or busybox says so and passes; without
//! a compiler the test of the filter fails, because nothing else shows that it holds.
//! `AIRLOCK_TEST_RUNTIME` names another runtime with runc's command line, such as `crun`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test's helpers may panic and say why a test was skipped"
)]

mod container;
mod isolation;
mod limits;
mod network;
mod ordinary;
mod syscalls;
