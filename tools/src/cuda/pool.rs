//! Memory from a pool.

use std::ptr;

use anyhow::Result;
use cudarc::driver::sys::{
    CUdevice, CUdeviceptr, CUmemAllocationHandleType, CUmemAllocationType, CUmemPoolProps, CUmemoryPool, CUstream,
};

use super::driver::functions;
use super::gpu::Gpu;
use super::vmm::location;

functions! {
    struct Functions {
        default_pool: c"cuDeviceGetDefaultMemPool" (pool: *mut CUmemoryPool, device: CUdevice);
        create: c"cuMemPoolCreate" (pool: *mut CUmemoryPool, properties: *const CUmemPoolProps);
        destroy: c"cuMemPoolDestroy" (pool: CUmemoryPool);
        alloc: c"cuMemAllocFromPoolAsync" (start: *mut CUdeviceptr, len: usize, pool: CUmemoryPool, stream: CUstream);
        free: c"cuMemFreeAsync" (start: CUdeviceptr, stream: CUstream);
    }
}

/// The stream that orders allocations and frees, which is the default one.
const STREAM: CUstream = ptr::null_mut();

#[derive(Debug)]
pub(super) struct FromPool {
    gpu: &'static Gpu,
    functions: &'static Functions,
    /// The pool, if it was made for this allocation.
    own_pool: Option<CUmemoryPool>,
    pub(super) start: CUdeviceptr,
}

impl FromPool {
    /// `len` bytes from a pool for GPUDirect RDMA, or from the default pool if CUDA cannot make one.
    pub(super) fn new(gpu: &'static Gpu, len: usize) -> Result<FromPool> {
        let functions = Functions::get()?;
        let mut piece = FromPool { gpu, functions, own_pool: None, start: 0 };
        let mut pool = ptr::null_mut();
        // SAFETY: all pointers are to local variables that outlive each call.
        unsafe {
            match functions.create(&mut pool, &properties(gpu)) {
                Ok(()) => piece.own_pool = Some(pool),
                Err(_) => functions.default_pool(&mut pool, gpu.device().handle)?,
            }
            functions.alloc(&mut piece.start, len, pool, STREAM)?;
        }
        gpu.synchronize()?;
        Ok(piece)
    }
}

impl Drop for FromPool {
    fn drop(&mut self) {
        // SAFETY: `new` made these, and nothing else uses them.
        unsafe {
            if self.start != 0 {
                let _ = self.functions.free(self.start, STREAM);
                // A failure of earlier work is not this buffer's.
                let _ = self.gpu.synchronize();
            }
            if let Some(pool) = self.own_pool {
                let _ = self.functions.destroy(pool);
            }
        }
    }
}

fn properties(gpu: &Gpu) -> CUmemPoolProps {
    CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: location(gpu),
        win32SecurityAttributes: ptr::null_mut(),
        maxSize: 0,
        usage: 0,
        gpuDirectRDMACapable: 1,
        reserved: [0; 53],
    }
}
