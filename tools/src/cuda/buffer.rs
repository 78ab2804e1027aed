//! GPU memory, pinned host memory, and CUDA's own copies between them.

use std::ffi::{c_uchar, c_uint, c_void};
use std::ptr::{self, NonNull};

use anyhow::{Context, Result};
use clap::ValueEnum;
use cudarc::driver::sys::CUdeviceptr;
use serde::Serialize;

use super::created::create;
use super::driver::{CudaError, functions};
use super::gpu::Gpu;

functions! {
    struct Functions {
        alloc: c"cuMemAlloc_v2" (start: *mut CUdeviceptr, len: usize);
        alloc_host: c"cuMemHostAlloc" (start: *mut *mut c_void, len: usize, flags: c_uint);
        to_device: c"cuMemcpyHtoD_v2" (target: CUdeviceptr, source: *const c_void, len: usize);
        to_host: c"cuMemcpyDtoH_v2" (target: *mut c_void, source: CUdeviceptr, len: usize);
        set_bytes: c"cuMemsetD8_v2" (start: CUdeviceptr, byte: c_uchar, len: usize);
    }
}

/// The size of a GPU page in bytes. Buffers start at a GPU page.
pub(crate) const GPU_PAGE: usize = 64 << 10;

/// The function that allocates GPU memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
pub(crate) enum Memory {
    #[value(name = "cuMemAlloc")]
    #[serde(rename = "cuMemAlloc")]
    Alloc,
    /// cuMemCreate, asking for GPUDirect RDMA.
    #[value(name = "cuMemCreate")]
    #[serde(rename = "cuMemCreate")]
    Create,
}

/// GPU memory that starts at a GPU page. It is allocated until the process ends.
#[derive(Debug)]
pub(crate) struct DeviceBuffer {
    gpu: &'static Gpu,
    memory: Memory,
    address: CUdeviceptr,
    len: usize,
    functions: &'static Functions,
}

impl DeviceBuffer {
    /// Allocates `len` bytes, rounded up to whole GPU pages.
    pub(crate) fn alloc(gpu: &'static Gpu, memory: Memory, len: usize) -> Result<DeviceBuffer> {
        let len = len.next_multiple_of(GPU_PAGE);
        let functions = Functions::get()?;
        let mut start = 0;
        match memory {
            // The allocation has room to align the start to a page.
            // SAFETY: the address is written to a local variable.
            Memory::Alloc => unsafe { functions.alloc(&mut start, len + GPU_PAGE - 1) }?,
            Memory::Create => start = create(gpu, len)?,
        }
        let address = start.next_multiple_of(GPU_PAGE as u64);
        Ok(DeviceBuffer { gpu, memory, address, len, functions })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The buffer's length in bytes, a multiple of the page size.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn memory(&self) -> Memory {
        self.memory
    }

    /// Copies `bytes` to the start of the buffer, and waits until they have arrived.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<()> {
        // SAFETY: the slice is readable.
        unsafe { self.copy_in(bytes.as_ptr(), 0, bytes.len()) }?;
        // Small copies may return before their bytes arrive.
        Ok(self.gpu.synchronize()?)
    }

    /// Copies from the start of the buffer.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> Result<()> {
        // SAFETY: the slice is writable.
        Ok(unsafe { self.copy_out(bytes.as_mut_ptr(), 0, bytes.len()) }?)
    }

    /// Sets the buffer's first `len` bytes on the GPU, and waits for the end.
    pub(crate) fn fill(&self, byte: u8, len: usize) -> Result<(), CudaError> {
        assert!(len <= self.len);
        // SAFETY: the range is in the buffer.
        unsafe { self.functions.set_bytes(self.address, byte, len) }?;
        self.gpu.synchronize()
    }

    /// Copies to this offset by cuMemcpyHtoD.
    ///
    /// # Safety
    /// `source` must be readable for `len` bytes.
    pub(crate) unsafe fn copy_in(&self, source: *const u8, at: usize, len: usize) -> Result<(), CudaError> {
        assert!(at + len <= self.len);
        // SAFETY: the host side is valid: contract of this function; the device side is in the buffer.
        unsafe { self.functions.to_device(self.address + at as u64, source.cast(), len) }
    }

    /// Copies from this offset by cuMemcpyDtoH.
    ///
    /// # Safety
    /// `target` must be writable for `len` bytes.
    pub(crate) unsafe fn copy_out(&self, target: *mut u8, at: usize, len: usize) -> Result<(), CudaError> {
        assert!(at + len <= self.len);
        // SAFETY: the host side is valid: contract of this function; the device side is in the buffer.
        unsafe { self.functions.to_host(target.cast(), self.address + at as u64, len) }
    }
}

/// Host memory that the GPU accesses without help of the CPU. It starts at a page boundary, and stays allocated until
/// the process ends.
#[derive(Debug)]
pub(crate) struct PinnedBuffer {
    address: NonNull<u8>,
    pub(crate) len: usize,
}

impl PinnedBuffer {
    /// Allocates zeroed memory. The calling thread must have a current CUDA context.
    pub(crate) fn alloc(len: usize) -> Result<PinnedBuffer> {
        let mut address = ptr::null_mut();
        // SAFETY: the address is written to a local variable.
        unsafe { Functions::get()?.alloc_host(&mut address, len, 0) }?;
        let address = NonNull::new(address.cast::<u8>()).context("cuMemHostAlloc gave NULL")?;
        // SAFETY: `len` bytes were just allocated. Writing initializes all of them.
        unsafe { address.write_bytes(0, len) };
        Ok(PinnedBuffer { address, len })
    }

    /// The buffer's address, for the CPU and for GPUs with unified addressing.
    pub(crate) fn as_mut_ptr(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// The buffer's bytes; only the CPU may write them during the borrow.
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the memory is initialized, has this length, and is borrowed together with the buffer.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.len) }
    }

    /// The buffer's bytes; only the CPU may use them during the borrow.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the memory is initialized, has this length, and is mutably borrowed together with the buffer.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.len) }
    }
}
