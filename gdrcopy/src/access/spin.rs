//! Waiting for the other side.
#![forbid(unsafe_code)]

use std::time::Instant;

use gdrcopy_core::error::{Error, Result};

/// Attempts it again and again until it returns something. At least once.
pub(crate) fn spin<R>(deadline: Option<Instant>, mut attempt: impl FnMut() -> Result<Option<R>>) -> Result<R> {
    loop {
        if let Some(result) = attempt()? {
            return Ok(result);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Error::TimedOut);
        }
        #[cfg(gdrapi_loom)]
        loom::thread::yield_now();
    }
}
