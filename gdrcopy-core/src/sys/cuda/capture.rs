//! Keeps this library's calls out of the graphs that the program captures.
//!
//! While any stream is capturing, CUDA refuses calls such as allocations and queries, and the refusal ends the
//! capture too. The relaxed mode of the calling thread permits them; they concern no capturing stream.

use std::ffi::c_uint;

use super::Driver;
use crate::error::Result;

const RELAXED: c_uint = 2;

impl Driver {
    /// Works while the calling thread may make any call, and leaves the thread as it was.
    pub(super) fn outside_captures<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut before = RELAXED;
        self.exchange(&mut before)?;
        let result = work();
        let restored = self.exchange(&mut before);
        let value = result?;
        restored?;
        Ok(value)
    }

    /// Sets the thread's capture mode to `mode`, which then is the one before.
    #[inline(never)]
    fn exchange(&self, mode: &mut c_uint) -> Result<()> {
        // SAFETY: the argument is valid for reads and writes.
        let result = unsafe { self.cu.exchange_capture_mode()?(mode) };
        self.check("cuThreadExchangeStreamCaptureMode", result)
    }
}
