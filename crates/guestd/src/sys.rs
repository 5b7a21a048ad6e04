//! The few system calls that neither the standard library nor rustix offers in safe form.
//!
//! All unsafe code of guestd is beneath this module.

pub(crate) mod inherited;
pub(crate) mod machine;
pub(crate) mod signals;
pub(crate) mod spawn;
pub(crate) mod watch;
