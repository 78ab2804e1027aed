//! GPU memory from the CUDA driver, without another crate.

use std::sync::Arc;

use crate::error::Result;
use crate::memory::device::{DeviceAllocator, DeviceMemory};
use gdrcopy_core::sys::cuda::memory::{Allocation, Gpu};

/// Allocates by cuMemAlloc, in the primary context of a GPU, from CUDA 11.0 on.
///
/// Where the GPU supports memory pools (`CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED`), memory is freed in the
/// order of a stream of its own, which waits for no GPU kernel. Elsewhere, as in TCC mode, cuMemFree waits for
/// all work of the GPU. The memory itself never comes from a pool, because such memory cannot be pinned.
#[derive(Clone, Debug)]
pub struct CudaAllocator {
    gpu: Arc<Gpu>,
}

impl CudaAllocator {
    /// The GPU with this number, as `CUDA_VISIBLE_DEVICES` leaves them. Initializes CUDA, and keeps the primary
    /// context of the GPU, which is made if need be.
    ///
    /// # Errors
    /// [`GdrError::NoCuda`](crate::GdrError::NoCuda), [`GdrError::CudaTooOld`](crate::GdrError::CudaTooOld),
    /// [`GdrError::Cuda`](crate::GdrError::Cuda) with what CUDA answered.
    pub fn new(gpu: i32) -> Result<CudaAllocator> {
        let gpu = Arc::new(Gpu::open(gpu)?);
        Ok(CudaAllocator { gpu })
    }
}

impl DeviceAllocator for CudaAllocator {
    fn allocate(&self, len: usize) -> Result<Box<dyn DeviceMemory>> {
        let (memory, gpu) = (self.gpu.alloc(len)?, Arc::clone(&self.gpu));
        Ok(Box::new(CudaMemory { gpu, memory, len }))
    }
}

/// Memory from cuMemAlloc.
#[derive(Debug)]
struct CudaMemory {
    gpu: Arc<Gpu>,
    memory: Allocation,
    len: usize,
}

// SAFETY: the allocation is freed when dropped, and no one else has its address.
unsafe impl DeviceMemory for CudaMemory {
    fn address(&self) -> u64 {
        self.memory.address
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        // SAFETY: it comes from this GPU's `alloc`, and the owner has no more use for it.
        if let Err(error) = unsafe { self.gpu.free(&self.memory) } {
            let address = self.memory.address;
            log::warn!("GPU memory at {address:#x} is not freed: {error}");
        }
    }
}
