//! GPU memory, and CUDA's own copies to and from it.

use std::ffi::{c_uchar, c_void};
use std::fmt;

use anyhow::Result;
use cudarc::driver::sys::CUdeviceptr;
use serde::Serialize;

use super::driver::{CudaError, functions};
use super::gpu::Gpu;
use super::pool::FromPool;
use super::vmm::Created;

functions! {
    pub(super) struct Functions {
        alloc: c"cuMemAlloc_v2" (*mut CUdeviceptr, usize);
        free: c"cuMemFree_v2" (CUdeviceptr);
        to_device: c"cuMemcpyHtoD_v2" (CUdeviceptr, *const c_void, usize);
        from_device: c"cuMemcpyDtoH_v2" (*mut c_void, CUdeviceptr, usize);
        set_bytes: c"cuMemsetD8_v2" (CUdeviceptr, c_uchar, usize);
    }
}

/// Bytes of a GPU page, to whose start buffers are aligned.
pub const GPU_PAGE: usize = 64 << 10;

/// Where GPU memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Memory {
    /// cuMemAlloc.
    #[serde(rename = "cuMemAlloc")]
    Alloc,
    /// cuMemCreate, asking for GPUDirect RDMA.
    #[serde(rename = "cuMemCreate")]
    Create,
    /// A memory pool that gives GPUDirect RDMA where CUDA has those (13.3), else any.
    #[serde(rename = "pool")]
    Pool,
}

/// What was allocated; dropping it gives it back.
pub(super) trait Allocation: fmt::Debug {
    fn start(&self) -> CUdeviceptr;
}

/// GPU memory that starts on a GPU page.
#[derive(Debug)]
pub struct DeviceBuffer {
    gpu: &'static Gpu,
    memory: Memory,
    address: CUdeviceptr,
    len: usize,
    _allocation: Box<dyn Allocation>,
}

impl DeviceBuffer {
    /// At least `len` bytes, rounded up to whole GPU pages.
    ///
    /// # Errors
    /// The driver refuses: it has not enough memory, or none of this kind.
    pub fn alloc(gpu: &'static Gpu, memory: Memory, len: usize) -> Result<DeviceBuffer> {
        let len = len.next_multiple_of(GPU_PAGE);
        // Room to start on a page.
        let roomy = len + GPU_PAGE - 1;
        let allocation: Box<dyn Allocation> = match memory {
            Memory::Alloc => Box::new(Plain::new(gpu, roomy)?),
            Memory::Create => Box::new(Created::new(gpu, len)?),
            Memory::Pool => Box::new(FromPool::new(gpu, roomy)?),
        };
        Ok(DeviceBuffer {
            gpu,
            memory,
            address: allocation.start().next_multiple_of(GPU_PAGE as u64),
            len,
            _allocation: allocation,
        })
    }

    /// Its device address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its length in bytes, whole GPU pages.
    #[expect(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where it comes from.
    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// Copies `bytes` to its start; they are there when it returns.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        // SAFETY: the slice is readable.
        unsafe { self.copy_in(bytes.as_ptr(), 0, bytes.len()) }?;
        // Small copies may return before their bytes have arrived.
        Ok(self.gpu.synchronize()?)
    }

    /// Copies from its start.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn read(&self, bytes: &mut [u8]) -> Result<()> {
        // SAFETY: the slice is writable.
        Ok(unsafe { self.copy_out(bytes.as_mut_ptr(), 0, bytes.len()) }?)
    }

    /// Has the GPU set its first `len` bytes, and waits until it has.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn fill(&self, byte: u8, len: usize) -> Result<(), CudaError> {
        assert!(len <= self.len);
        // SAFETY: the range lies in the buffer.
        let result = unsafe { (self.gpu.buffers.set_bytes)(self.address, byte, len) };
        self.gpu.driver().check("cuMemsetD8", result)?;
        self.gpu.synchronize()
    }

    /// cuMemcpyHtoD to this offset.
    ///
    /// # Safety
    /// `source` must be readable for `len` bytes.
    ///
    /// # Errors
    /// The driver refuses.
    pub unsafe fn copy_in(
        &self,
        source: *const u8,
        at: usize,
        len: usize,
    ) -> Result<(), CudaError> {
        assert!(at + len <= self.len);
        // SAFETY: the caller vouches for the host side; the device side lies in the buffer.
        let result =
            unsafe { (self.gpu.buffers.to_device)(self.address + at as u64, source.cast(), len) };
        self.gpu.driver().check("cuMemcpyHtoD", result)
    }

    /// cuMemcpyDtoH from this offset.
    ///
    /// # Safety
    /// `target` must be writable for `len` bytes.
    ///
    /// # Errors
    /// The driver refuses.
    pub unsafe fn copy_out(&self, target: *mut u8, at: usize, len: usize) -> Result<(), CudaError> {
        assert!(at + len <= self.len);
        // SAFETY: the caller vouches for the host side; the device side lies in the buffer.
        let result =
            unsafe { (self.gpu.buffers.from_device)(target.cast(), self.address + at as u64, len) };
        self.gpu.driver().check("cuMemcpyDtoH", result)
    }
}

/// Memory from cuMemAlloc.
#[derive(Debug)]
struct Plain {
    gpu: &'static Gpu,
    start: CUdeviceptr,
}

impl Plain {
    fn new(gpu: &'static Gpu, len: usize) -> Result<Plain, CudaError> {
        let mut start = 0;
        // SAFETY: the address is written to a local variable.
        let result = unsafe { (gpu.buffers.alloc)(&mut start, len) };
        gpu.driver().check("cuMemAlloc", result)?;
        Ok(Plain { gpu, start })
    }
}

impl Allocation for Plain {
    fn start(&self) -> CUdeviceptr {
        self.start
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: the allocation is ours, and nothing uses it any more.
        unsafe { (self.gpu.buffers.free)(self.start) };
    }
}
