//! Allocation of GPU memory that can be pinned.

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::ptr;

use super::{Context, Device, DeviceAttribute, Driver};
use crate::error::Result;
use crate::sys::fork::{self, Owner};
use crate::types::cuda_version::OLDEST;

const INVALID_VALUE: c_uint = 1;
const STREAM_NON_BLOCKING: c_uint = 1;

/// A GPU whose primary context is kept.
#[derive(Debug)]
pub struct Gpu {
    driver: &'static Driver,
    device: Device,
    context: Context,
    /// Orders the frees, where the GPU supports that; otherwise null. No other work is in it.
    frees: *mut c_void,
    owner: Owner,
}

// SAFETY: contexts and streams may be used by any thread, and the driver synchronizes its calls.
unsafe impl Send for Gpu {}
// SAFETY: as for `Send`.
unsafe impl Sync for Gpu {}

impl Gpu {
    pub fn open(ordinal: i32) -> Result<Gpu> {
        fork::enter()?;
        let driver = super::load(OLDEST)?;
        driver.init()?;
        let device = driver.device(ordinal)?;
        let mut gpu = Gpu {
            driver,
            device,
            // `drop` releases it.
            context: driver.retain(device)?,
            frees: ptr::null_mut(),
            owner: Owner::current(),
        };
        if driver.attribute(device, DeviceAttribute::MemoryPools)? == Some(1) {
            let mut stream = ptr::null_mut();
            gpu.in_context(|| {
                // SAFETY: the output is a local variable; `drop` destroys it.
                let created =
                    unsafe { driver.cu.stream_create()?(&mut stream, STREAM_NON_BLOCKING) };
                driver.check("cuStreamCreate", created)
            })?;
            gpu.frees = stream;
        }
        Ok(gpu)
    }

    /// Address of `len` bytes from cuMemAlloc: memory of CUDA's default pools cannot be pinned.
    pub fn alloc(&self, len: usize) -> Result<u64> {
        self.owner.check()?;
        let mut address: c_ulonglong = 0;
        self.in_context(|| {
            // SAFETY: the output is a local variable.
            let result = unsafe { self.driver.cu.alloc()?(&mut address, len) };
            self.driver.check("cuMemAlloc", result)
        })?;
        Ok(address)
    }

    /// Frees memory; in a forked child, does nothing.
    ///
    /// # Safety
    /// The address is one that `alloc` returned, and is not used any more, nor by work of the GPU.
    pub unsafe fn free(&self, address: u64) -> Result<()> {
        if !self.owner.is_current() {
            return Ok(());
        }
        let cu = &self.driver.cu;
        self.in_context(|| {
            // cuMemFree waits for all work of the GPU, which may be a kernel that waits for this thread.
            if let (Ok(free_async), false) = (cu.free_async(), self.frees.is_null()) {
                // SAFETY: contract of this function.
                let result = unsafe { free_async(address, self.frees) };
                // A library that stands in for cuMemAlloc only is in between: the address is not CUDA's.
                if result != INVALID_VALUE {
                    return self.driver.check("cuMemFreeAsync", result);
                }
            }
            // SAFETY: contract of this function.
            let result = unsafe { cu.free()?(address) };
            self.driver.check("cuMemFree", result)
        })
    }

    /// Works in the context that is kept.
    fn in_context<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.driver.with_current(self.context, work)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            return;
        }
        if !self.frees.is_null() {
            let _ = self.in_context(|| {
                // SAFETY: `open` made it. Frees in it are still done.
                let result = unsafe { self.driver.cu.stream_destroy()?(self.frees) };
                self.driver.check("cuStreamDestroy", result)
            });
        }
        let _ = self.driver.release(self.device);
    }
}
