//! Host memory that the GPU can reach.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{self, NonNull};

use anyhow::{Context, Result};

use super::driver::functions;
use super::gpu::Gpu;

functions! {
    pub(super) struct Functions {
        alloc: c"cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
        free: c"cuMemFreeHost" (*mut c_void);
    }
}

/// Host memory that the GPU can reach without help of the CPU. It starts on a page.
#[derive(Debug)]
pub struct PinnedBuffer {
    gpu: &'static Gpu,
    address: NonNull<u8>,
    len: usize,
}

impl PinnedBuffer {
    /// Memory that is zero.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn alloc(gpu: &'static Gpu, len: usize) -> Result<PinnedBuffer> {
        let mut address = ptr::null_mut();
        // SAFETY: the address is written to a local variable.
        let result: c_int = unsafe { (gpu.host.alloc)(&mut address, len, 0) };
        gpu.driver().check("cuMemHostAlloc", result)?;
        let address = NonNull::new(address.cast::<u8>()).context("cuMemHostAlloc gave NULL")?;
        // SAFETY: the memory is ours. Writing it makes every byte of it initialized.
        unsafe { address.write_bytes(0, len) };
        Ok(PinnedBuffer { gpu, address, len })
    }

    /// Its address, for the CPU, and for GPUs that share the CPU's addresses.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// Its bytes; nothing but the CPU may write them meanwhile.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: initialized memory of this length, borrowed as the buffer is.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.len) }
    }

    /// Its bytes; nothing but the CPU may use them meanwhile.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.len) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // SAFETY: the memory is ours, and nothing uses it any more.
        unsafe { (self.gpu.host.free)(self.address.as_ptr().cast()) };
    }
}
