//! Allocates pinnable GPU memory, or host memory in its place. Finds the CPU address of host memory. Exports dma-bufs.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use super::context::Place;
use super::{Context, Device, DeviceAttribute, Driver, PointerAttribute};
use crate::error::{self, Error, Result};
use crate::sys::fork::{self, Owner};
use crate::types::cuda_version::{EXPORTS_DMA_BUFS, OLDEST};

const CONTEXT_IS_DESTROYED: c_uint = 709;

/// The flag of a stream that neither waits for the default stream nor holds it up.
const NON_BLOCKING: c_uint = 1;

/// The flag of cuMemHostAlloc for memory that all contexts can use.
const PORTABLE: c_uint = 1;
/// The flag of cuMemHostAlloc for memory that is mapped for GPUs.
const MAPPED: c_uint = 2;

/// The value of the attribute MEMORY_TYPE for host memory.
const HOST: u64 = 1;

/// The type of handle that cuMemGetHandleForAddressRange returns for a dma-buf.
const HANDLE_TYPE_DMA_BUF_FD: c_int = 1;
/// The flag of cuMemGetHandleForAddressRange for accesses through PCIe.
const RANGE_FLAG_PCIE: c_ulonglong = 1;

/// The capture mode in which a thread may make any call while a stream is being captured.
const RELAXED: c_uint = 2;

/// Memory from [`Gpu::alloc`] or [`Gpu::alloc_host`].
#[derive(Debug)]
pub struct Allocation {
    /// The device address of the memory, for GPU kernels and pins.
    pub address: u64,
    /// The CPU address of host memory; 0 for GPU memory.
    pub host: usize,
    /// CUDA's number for the allocation, if it has one. A reset of the device frees the memory, and the address
    /// then loses the number. If another library replaces cuMemAlloc, its memory has no number.
    id: Option<u64>,
}

/// A GPU and its primary context, which is retained. A reset of the device ends the context nevertheless.
#[derive(Debug)]
pub struct Gpu {
    driver: &'static Driver,
    device: Device,
    context: Context,
    /// CUDA's number of the context; `None` if CUDA does not number contexts, as before CUDA 12.
    id: Option<u64>,
    /// The stream in which memory is freed; null if the GPU does not support that. The stream has no other work.
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
        let mut gpu = Gpu::of_device(driver, device)?;
        if driver.attribute(device, DeviceAttribute::MemoryPools)? == Some(1) {
            let mut stream = ptr::null_mut();
            gpu.in_context(|| {
                // SAFETY: the output is a local variable.
                driver.check("cuStreamCreate", unsafe { driver.cu.stream_create()?(&mut stream, NON_BLOCKING) })
            })?;
            gpu.frees = stream;
        }
        Ok(gpu)
    }

    /// Returns the GPU of the thread's context, or else GPU 0, for `alloc_host`, which needs no stream for frees.
    pub fn of_thread() -> Result<Gpu> {
        fork::enter()?;
        let driver = super::load(EXPORTS_DMA_BUFS)?;
        driver.init()?;
        let device = match driver.current_device()? {
            Some(device) => device,
            None => driver.device(0)?,
        };
        Gpu::of_device(driver, device)
    }

    fn of_device(driver: &'static Driver, device: Device) -> Result<Gpu> {
        // This retains the context, and `Gpu::drop` releases it.
        let context = driver.retain(device)?;
        let id = driver.context_id(context).ok();
        Ok(Gpu { driver, device, context, id, frees: ptr::null_mut(), owner: Owner::current() })
    }

    /// Allocates `len` bytes by cuMemAlloc, and not by cuMemAllocAsync, because memory of CUDA's default pools cannot
    /// be pinned. Fails after a reset of the device, which destroys the stream that `free` passes to cuMemFreeAsync.
    pub fn alloc(&self, len: usize) -> Result<Allocation> {
        self.owner.check()?;
        if self.id.is_some() && !self.is_live() {
            return Err(error::of_cuda("cuMemAlloc", CONTEXT_IS_DESTROYED));
        }
        let mut address: c_ulonglong = 0;
        self.in_context(|| {
            // SAFETY: the output is a local variable.
            let result = unsafe { self.driver.cu.alloc()?(&mut address, len) };
            self.driver.check("cuMemAlloc", result)?;
            let id = self.driver.buffer_id(address).ok();
            Ok(Allocation { address, host: 0, id })
        })
    }

    /// Allocates `len` bytes (at least 1) of zeroed, page-locked host memory, which GPUs can access.
    pub fn alloc_host(&self, len: usize) -> Result<Allocation> {
        let cu = &self.driver.cu;
        let find = cu.host_device_pointer()?;
        let mut host = ptr::null_mut();
        let mut address = 0;
        let answer = self.in_context(|| {
            // SAFETY: the output is a local variable.
            let result = unsafe { cu.host_alloc()?(&mut host, len, PORTABLE | MAPPED) };
            self.driver.check("cuMemHostAlloc", result)?;
            // SAFETY: the output is a local variable.
            Ok(unsafe { find(&mut address, host, 0) })
        })?;
        // SAFETY: `len` bytes were allocated at `host`, and no one else has them.
        unsafe { ptr::write_bytes(host.cast::<u8>(), 0, len) };
        let memory = Allocation { address, host: host.expose_provenance(), id: self.driver.buffer_id(address).ok() };
        if let Err(error) = self.driver.check("cuMemHostGetDevicePointer", answer) {
            // SAFETY: no one uses the memory yet.
            let _ = unsafe { self.free(&memory) };
            return Err(error);
        }
        Ok(memory)
    }

    /// Frees memory. Does nothing in a forked child, or if the memory is gone.
    ///
    /// # Safety
    /// Neither the CPU nor work of the GPU uses the memory any more.
    pub unsafe fn free(&self, memory: &Allocation) -> Result<()> {
        let address = memory.address;
        if !self.owner.is_current() {
            return Ok(());
        }
        if let Some(id) = memory.id
            && self.driver.buffer_id(address) != Ok(id)
        {
            return Ok(());
        }
        let cu = &self.driver.cu;
        let by_stream = memory.id.is_some() && !self.frees.is_null();
        self.in_context(|| {
            if memory.host != 0 {
                // SAFETY: contract of this function.
                let result = unsafe { cu.host_free()?(ptr::with_exposed_provenance_mut(memory.host)) };
                return self.driver.check("cuMemFreeHost", result);
            }
            // cuMemFree would wait for all work of the GPU, and a GPU kernel may be waiting for this thread.
            if by_stream && let Ok(free_async) = cu.free_async() {
                // SAFETY: contract of this function. The memory exists, so the context that `alloc` has found live
                // exists too, and so does the stream that `open` has made in it.
                let result = unsafe { free_async(address, self.frees) };
                return self.driver.check("cuMemFreeAsync", result);
            }
            // SAFETY: contract of this function.
            let result = unsafe { cu.free()?(address) };
            self.driver.check("cuMemFree", result)
        })
    }

    /// Returns whether the retained context still exists, or false if this CUDA does not number contexts. Callers check
    /// this, because CUDA does not check that the context of a stream exists.
    fn is_live(&self) -> bool {
        self.id.is_some() && self.driver.context_id(self.context).ok() == self.id
    }

    /// Calls `work` in the retained context. This works while streams are being captured, too.
    fn in_context<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.driver.outside_captures(|| self.driver.with_current(self.context, work))
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            return;
        }
        // If CUDA does not number contexts, `is_live` returns false, and the stream is never destroyed.
        if !self.frees.is_null() && self.is_live() {
            let _ = self.in_context(|| {
                // SAFETY: `open` has made the stream, and its context exists. CUDA still executes the queued frees.
                let result = unsafe { self.driver.cu.stream_destroy()?(self.frees) };
                self.driver.check("cuStreamDestroy", result)
            });
        }
        let _ = self.driver.release(self.device);
    }
}

impl Driver {
    /// Returns the CPU address of the `len` bytes of mapped host memory at a device address.
    ///
    /// # Errors
    /// [`Error::NotHostMemory`] if a part of the range is not mapped host memory.
    pub fn host_address(&self, device_address: u64, len: usize) -> Result<NonNull<u8>> {
        // CUDA returns an error for memory that it does not know. Such memory is not mapped host memory either.
        if self.is_host_memory(device_address, len) != Ok(true) {
            return Err(Error::NotHostMemory);
        }
        let address = self.pointer_attribute(PointerAttribute::HostPointer, device_address)?;
        match NonNull::new(ptr::with_exposed_provenance_mut(address as usize)) {
            Some(address) => Ok(address),
            None => Err(Error::NotHostMemory),
        }
    }

    /// Returns whether all `len` bytes from an address on lie in one range of host memory that CUDA allocated or
    /// registered. With unified addressing, the address may be a CPU address.
    fn is_host_memory(&self, address: u64, len: usize) -> Result<bool> {
        use PointerAttribute::{IsManaged, MemoryType, RangeSize, RangeStart};
        if self.pointer_attribute(MemoryType, address)? != HOST || self.pointer_attribute(IsManaged, address)? != 0 {
            return Ok(false);
        }
        let start = self.pointer_attribute(RangeStart, address)?;
        let size = self.pointer_attribute(RangeSize, address)?;
        let end = u128::from(address) + len as u128;
        Ok(start <= address && end <= u128::from(start) + u128::from(size))
    }

    /// Exports `len` bytes from `address` on as a dma-buf. Both numbers are multiples of the host's page size.
    pub fn export(&self, place: &Place, address: u64, len: usize, over_pcie: bool) -> Result<OwnedFd> {
        let flags = if over_pcie { RANGE_FLAG_PCIE } else { 0 };
        let export = self.cu.export()?;
        self.in_context(place, || {
            let mut fd: c_int = -1;
            let output = ptr::from_mut(&mut fd).cast();
            // SAFETY: CUDA stores an int, the descriptor, through `output`, and only looks the range up.
            let result = unsafe { export(output, address, len, HANDLE_TYPE_DMA_BUF_FD, flags) };
            self.check("cuMemGetHandleForAddressRange", result)?;
            // SAFETY: the descriptor is new and ours.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        })
    }

    /// Calls `work` in the capture mode `RELAXED`, in which the thread may make any call, then restores the mode. In
    /// other modes, CUDA refuses calls such as allocations while any stream is capturing, and thereby ends the capture.
    fn outside_captures<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut before = RELAXED;
        self.exchange(&mut before)?;
        let result = work();
        let restored = self.exchange(&mut before);
        let value = result?;
        restored?;
        Ok(value)
    }

    /// Sets the thread's capture mode to `mode`, and stores the previous mode in `mode`.
    #[inline(never)]
    fn exchange(&self, mode: &mut c_uint) -> Result<()> {
        // SAFETY: the argument is valid for reads and writes.
        let result = unsafe { self.cu.exchange_capture_mode()?(mode) };
        self.check("cuThreadExchangeStreamCaptureMode", result)
    }
}
