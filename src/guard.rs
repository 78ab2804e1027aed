//! Runs the bodies of all C functions except `gdr_runtime_get_version` and copies with valid arguments. Turns errors
//! into errno and a log line, catches panics, and defers thread cancellation.
#![forbid(unsafe_code)]

use std::ffi::c_int;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gdrcopy_core::cancel::Deferred;
use gdrcopy_core::{heap, stderr};

use crate::error::{Error, Result};

/// Runs the body of the C function `name`. Returns 0, or logs the error and returns its errno.
pub(crate) fn guard(name: &str, body: impl FnOnce() -> Result<()>) -> c_int {
    match caught(name, body) {
        Ok(()) => 0,
        Err(error) => error.errno(),
    }
}

/// Runs the body of the C function `name`. Turns a panic into an error, and logs errors.
pub(crate) fn caught<T>(name: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    let _deferred = Deferred::new();
    // Later calls work after a panic, because locks do not poison, and the data behind them is valid at every step.
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error,
        Err(payload) => {
            // The panic's payload is leaked, because dropping a value of unknown type might panic again.
            std::mem::forget(payload);
            Error::Panicked
        }
    };
    log_failure(name, &error);
    Err(error)
}

#[cold]
#[inline(never)]
fn log_failure(name: &str, error: &dyn Display) {
    // If a function fails before the first `gdr_open`, the environment variables that configure the log have not been
    // read yet. They are read here if there is memory for that.
    if !stderr::is_installed() && heap::require().is_ok() {
        stderr::install();
    }
    log::error!("{name}: {error}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_becomes_eio() {
        assert_eq!(guard("gdr_test", || panic!("on purpose, in a test")), libc::EIO);
    }
}
