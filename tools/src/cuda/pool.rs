//! Memory from a pool.

use std::ptr;

use anyhow::Result;
use cudarc::driver::sys::{
    CUdevice, CUdeviceptr, CUmemAllocationHandleType, CUmemAllocationType, CUmemPoolProps,
    CUmemoryPool, CUstream,
};

use super::buffer::Allocation;
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

/// The stream in whose order memory is taken and given back: the default one.
const STREAM: CUstream = ptr::null_mut();

/// A piece of a pool's memory.
#[derive(Debug)]
pub(super) struct FromPool {
    gpu: &'static Gpu,
    functions: Functions,
    /// The pool, if it was made for this piece.
    own_pool: Option<CUmemoryPool>,
    address: CUdeviceptr,
}

impl FromPool {
    /// `len` bytes of a pool for GPUDirect RDMA; where CUDA cannot make one, of the default pool.
    pub(super) fn new(gpu: &'static Gpu, len: usize) -> Result<FromPool> {
        let (driver, functions) = (gpu.driver(), Functions::of(gpu.driver())?);
        let mut piece = FromPool {
            gpu,
            functions,
            own_pool: None,
            address: 0,
        };
        let f = &piece.functions;
        let mut pool = ptr::null_mut();
        // SAFETY: what is read and written lives through each call.
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
}

impl Allocation for FromPool {
    fn start(&self) -> CUdeviceptr {
        self.address
    }
}

impl Drop for FromPool {
    fn drop(&mut self) {
        let f = &self.functions;
        // SAFETY: what `new` made, and nothing else uses.
        unsafe {
            if self.address != 0 {
                (f.free)(self.address, STREAM);
                // A failure of earlier work is for those to tell who asked for it.
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
