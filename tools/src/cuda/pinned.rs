//! Pinned host memory.

use std::ffi::{c_uint, c_void};
use std::ptr::{self, NonNull};

use anyhow::{Context, Result};

use super::driver::functions;

functions! {
    struct Functions {
        alloc: c"cuMemHostAlloc" (start: *mut *mut c_void, len: usize, flags: c_uint);
    }
}

/// Host memory that the GPU accesses without help of the CPU. It starts on a page, and is allocated until the process ends.
#[derive(Debug)]
pub(crate) struct PinnedBuffer {
    address: NonNull<u8>,
    pub(crate) len: usize,
}

impl PinnedBuffer {
    /// Zeroed memory; a context must be current.
    pub(crate) fn alloc(len: usize) -> Result<PinnedBuffer> {
        let mut address = ptr::null_mut();
        // SAFETY: the address is written to a local variable.
        unsafe { Functions::get()?.alloc(&mut address, len, 0) }?;
        let address = NonNull::new(address.cast::<u8>()).context("cuMemHostAlloc gave NULL")?;
        // SAFETY: `len` bytes were just allocated. Writing initializes all of them.
        unsafe { address.write_bytes(0, len) };
        Ok(PinnedBuffer { address, len })
    }

    /// Its address, for the CPU and for GPUs with unified addressing.
    pub(crate) fn as_mut_ptr(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// Its bytes; only the CPU may write them during the borrow.
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: initialized memory of this length, borrowed as the buffer is.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.len) }
    }

    /// Its bytes; only the CPU may use them during the borrow.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.len) }
    }
}
