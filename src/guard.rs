//! The boundary of every C function but the two copies: results become errno and a log line, panics
//! end here, and the thread cannot be canceled in between.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, Result};
use crate::log;

/// Runs the body of the C function `name`. An error is logged and becomes its errno, success is 0.
pub(super) fn guard(name: &str, body: impl FnOnce() -> Result<()>) -> c_int {
    match caught(name, body) {
        Ok(()) => 0,
        Err(error) => error.errno(),
    }
}

/// Runs the body of the C function `name`, logs an error, and makes one of a panic.
pub(super) fn caught<T>(name: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    let _call = Call::enter();
    // Unwind safe: locks do not poison, and what they protect is valid at every step.
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        // Dropping a payload of unknown type might panic again.
        std::mem::forget(payload);
        Err(Error::Panicked)
    });
    result.inspect_err(|error| log::error!("{name}: {error}"))
}

/// The calls in progress.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Whether no thread is inside a call.
pub(super) fn is_idle() -> bool {
    CALLS.load(Ordering::SeqCst) == 0
}

/// A call in progress: counted, and not to be canceled.
///
/// glibc cancels a thread by unwinding its stack. Through Rust frames that aborts the process, and it
/// would leave descriptors and handles behind. A pending cancellation takes effect after the call.
pub(super) struct Call {
    cancel_state: c_int,
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old_state: *mut c_int) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

impl Call {
    pub(super) fn enter() -> Call {
        CALLS.fetch_add(1, Ordering::SeqCst);
        let mut cancel_state = 0;
        // SAFETY: the place is ours; POSIX defines the function for every thread.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut cancel_state) };
        Call { cancel_state }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::SeqCst);
        let mut disabled = 0;
        // SAFETY: as in `enter`; the state is the one that the thread came with.
        unsafe { pthread_setcancelstate(self.cancel_state, &mut disabled) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_become_errno() {
        assert_eq!(guard("gdr_test", || Ok(())), 0);
        assert_eq!(
            guard("gdr_test", || Err(Error::AlreadyMapped)),
            libc::EAGAIN
        );
    }

    #[test]
    fn a_panic_becomes_an_errno() {
        assert_eq!(
            guard("gdr_test", || panic!("on purpose, in a test")),
            libc::EIO
        );
    }
}
