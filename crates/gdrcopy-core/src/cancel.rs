//! Protects Rust code from thread cancellation (`pthread_cancel`).

use std::ffi::c_int;

/// Defers the cancellation of the calling thread (`pthread_cancel`) as long as the value exists.
///
/// glibc cancels a thread by unwinding its stack. Unwinding Rust frames that way aborts the process. This still happens
/// in asynchronous mode (`PTHREAD_CANCEL_ASYNCHRONOUS`), which cancels a thread inside of `drop`, a Rust frame. But
/// POSIX allows such a thread to call only three functions, none of them in this library.
#[derive(Debug)]
pub struct Deferred {
    state_before: c_int,
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, state_before: *mut c_int) -> c_int;
}

/// The value of the C macro with this name in glibc and musl.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

impl Deferred {
    /// Defers cancellation from now on.
    #[expect(clippy::new_without_default, reason = "it changes the thread")]
    pub fn new() -> Deferred {
        let mut state_before = 0;
        // SAFETY: the output is a local variable; POSIX defines the function for every thread.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut state_before) };
        Deferred { state_before }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        let mut deferred = 0;
        // SAFETY: the output is a local variable; the state is the one that the thread was in before.
        unsafe { pthread_setcancelstate(self.state_before, &mut deferred) };
    }
}
