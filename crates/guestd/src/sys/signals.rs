//! Waiting for signals without handlers, for a process with one thread.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Lets every signal through in this thread and those that it starts.
///
/// A child inherits what its parent holds back, and the first process holds back the very signal
/// by which the serving process is asked to end.
pub(crate) fn let_through() {
    let mut none = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set before pthread_sigmask reads it.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// Signals that are held back until [`SignalQueue::wait`] takes them.
pub(crate) struct SignalQueue(libc::sigset_t);

impl SignalQueue {
    /// Holds `signals` back in this thread from now on.
    pub(crate) fn block(signals: &[c_int]) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set before anything reads it; sigaddset and
        // pthread_sigmask get valid pointers to it.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            let mut set = set.assume_init();
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            set
        };
        Self(set)
    }

    /// Takes the next signal; nothing when `timeout` passes first.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Option<c_int> {
        let signal = match timeout {
            // SAFETY: the set is initialised, and no details are asked for.
            None => unsafe { libc::sigwaitinfo(&raw const self.0, std::ptr::null_mut()) },
            Some(timeout) => {
                let timeout = libc::timespec {
                    tv_sec: timeout.as_secs().cast_signed(),
                    tv_nsec: timeout.subsec_nanos().into(),
                };
                // SAFETY: as above, and `timeout` lives through the call.
                unsafe {
                    libc::sigtimedwait(&raw const self.0, std::ptr::null_mut(), &raw const timeout)
                }
            }
        };
        (signal > 0).then_some(signal)
    }
}
