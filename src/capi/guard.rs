//! The one place where Rust results become C's, and where a panic ends.
#![forbid(unsafe_code)]

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

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
    // Unwind safe: locks do not poison, and what they protect is valid at every step.
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        // Dropping somebody's payload might panic again.
        std::mem::forget(payload);
        Err(Error::Panicked)
    });
    result.inspect_err(|error| log::error!("{name}: {error}"))
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
