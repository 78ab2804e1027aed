//! The boundary of every C function except the two copies. Turns results into errno and a log line, catches
//! panics, and defers thread cancellation.
#![forbid(unsafe_code)]

use std::ffi::c_int;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use gdrcopy_core::cancel::Deferred;
use gdrcopy_core::{memory, stderr};

use crate::error::{Error, Result};

/// Runs the body of the C function `name`. An error is logged and becomes its errno, success is 0.
pub(crate) fn guard(name: &str, body: impl FnOnce() -> Result<()>) -> c_int {
    match caught(name, body) {
        Ok(()) => 0,
        Err(error) => error.errno(),
    }
}

/// Runs the body of the C function `name`; logs an error, and turns a panic into one.
pub(crate) fn caught<T>(name: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    caught_during(Call::enter(), name, body)
}

/// The same in the listener's thread.
pub(crate) fn caught_in_listener<T>(name: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    caught_during(Call::counted_as(LISTENER), name, body)
}

fn caught_during<T>(_call: Call, name: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    // Unwind safe, because locks do not poison, and their data is valid at every step.
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        // Dropping a payload of unknown type might panic again.
        std::mem::forget(payload);
        Err(Error::Panicked)
    });
    result.inspect_err(|error| log_failure(name, error))
}

#[cold]
#[inline(never)]
fn log_failure(name: &str, error: &dyn Display) {
    // The first call of the process may fail, before any that reads the environment variables. Reading them
    // takes memory.
    if !stderr::is_installed() && memory::require().is_ok() {
        stderr::install();
    }
    log::error!("{name}: {error}");
}

/// The calls in progress, the listener's as [`LISTENER`].
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Returns whether no thread is inside a call.
pub(crate) fn is_idle() -> bool {
    CALLS.load(Ordering::SeqCst) == 0
}

/// More than there are threads.
const LISTENER: usize = 1 << 30;

/// Returns whether a call is in progress that is neither the listener's nor the caller's own.
pub(crate) fn others_are_inside() -> bool {
    CALLS.load(Ordering::SeqCst) % LISTENER > 1
}

/// A call in progress, counted, with thread cancellation deferred.
pub(crate) struct Call {
    count: usize,
    #[expect(dead_code, reason = "for its drop")]
    deferred: Deferred,
}

impl Call {
    pub(crate) fn enter() -> Call {
        Call::counted_as(1)
    }

    fn counted_as(count: usize) -> Call {
        CALLS.fetch_add(count, Ordering::SeqCst);
        Call { count, deferred: Deferred::new() }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.fetch_sub(self.count, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_becomes_its_errno() {
        assert_eq!(guard("gdr_test", || Ok(())), 0);
        assert_eq!(guard("gdr_test", || Err(gdrcopy_core::Error::AlreadyMapped.into())), libc::EAGAIN);
    }

    #[test]
    fn panic_becomes_eio() {
        assert_eq!(guard("gdr_test", || panic!("on purpose, in a test")), libc::EIO);
    }
}
