//! Pinned host memory.

use std::ffi::{c_uint, c_void};
use std::ptr::{self, NonNull};

use anyhow::{Context, Result};

use super::driver::functions;

functions! {
    struct Functions {
        alloc: c"cuMemHostAlloc" (start: *mut *mut c_void, len: usize, flags: c_uint);
        free: c"cuMemFreeHost" (start: *mut c_void);
    }
}

/// Host memory that the GPU accesses without help of the CPU. It starts on a page.
#[derive(Debug)]
pub(crate) struct PinnedBuffer {
    functions: &'static Functions,
    address: NonNull<u8>,
    pub(crate) len: usize,
}

impl PinnedBuffer {
    /// Zeroed memory; a context must be current.
    pub(crate) fn alloc(len: usize) -> Result<PinnedBuffer> {
        let functions = Functions::get()?;
        let mut address = ptr::null_mut();
        // SAFETY: the address is written to a local variable.
        unsafe { functions.alloc(&mut address, len, 0) }?;
        let address = NonNull::new(address.cast::<u8>()).context("cuMemHostAlloc gave NULL")?;
        // SAFETY: `len` bytes were just allocated. Writing initializes all of them.
        unsafe { address.write_bytes(0, len) };
        Ok(PinnedBuffer { functions, address, len })
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

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // SAFETY: this owns the memory, and nothing uses it any more.
        let _ = unsafe { self.functions.free(self.address.as_ptr().cast()) };
    }
}
