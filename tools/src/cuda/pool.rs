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
        default_pool: c"cuDeviceGetDefaultMemPool" (*mut CUmemoryPool, CUdevice);
        create: c"cuMemPoolCreate" (*mut CUmemoryPool, *const CUmemPoolProps);
        destroy: c"cuMemPoolDestroy" (CUmemoryPool);
        alloc: c"cuMemAllocFromPoolAsync" (*mut CUdeviceptr, usize, CUmemoryPool, CUstream);
        free: c"cuMemFreeAsync" (CUdeviceptr, CUstream);
    }
}

/// The stream that orders allocations and frees, which is the default one.
const STREAM: CUstream = ptr::null_mut();

/// Memory from a pool.
#[derive(Debug)]
pub(super) struct FromPool {
    gpu: &'static Gpu,
    functions: &'static Functions,
    /// The pool, if it was made for this allocation.
    own_pool: Option<CUmemoryPool>,
    address: CUdeviceptr,
}

impl FromPool {
    /// `len` bytes from a pool for GPUDirect RDMA, or from the default pool if CUDA cannot make one.
    pub(super) fn new(gpu: &'static Gpu, len: usize) -> Result<FromPool> {
        let (driver, functions) = (gpu.driver(), Functions::get(gpu.driver())?);
        let mut piece = FromPool { gpu, functions, own_pool: None, address: 0 };
        let f = piece.functions;
        let mut pool = ptr::null_mut();
        // SAFETY: all pointers are to local variables that outlive each call.
        unsafe {
            if (f.create)(&mut pool, &properties(gpu)) == 0 {
                piece.own_pool = Some(pool);
            } else {
                let answer = (f.default_pool)(&mut pool, gpu.handle());
                driver.check("cuDeviceGetDefaultMemPool", answer)?;
            }
            let answer = (f.alloc)(&mut piece.address, len, pool, STREAM);
            driver.check("cuMemAllocFromPoolAsync", answer)?;
        }
        gpu.synchronize()?;
        Ok(piece)
    }

    pub(super) fn start(&self) -> CUdeviceptr {
        self.address
    }
}

impl Drop for FromPool {
    fn drop(&mut self) {
        let f = self.functions;
        // SAFETY: `new` made these, and nothing else uses them.
        unsafe {
            if self.address != 0 {
                (f.free)(self.address, STREAM);
                // A failure of earlier work is not this buffer's.
                let _ = self.gpu.synchronize();
            }
            if let Some(pool) = self.own_pool {
                (f.destroy)(pool);
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
