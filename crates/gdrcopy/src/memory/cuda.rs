//! Memory that the CUDA driver allocates, on the GPU or on the host. This needs no other crate for CUDA.

use std::ptr;
use std::sync::Arc;

use crate::error::{GdrError, Result};
use crate::memory::device::{DeviceAllocator, DeviceMemory};
use gdrcopy_core::sys::cuda::allocation::{Allocation, Gpu};

/// Allocates by cuMemAlloc, in the primary context of a GPU, with CUDA 11.0 and newer.
///
/// If the GPU supports memory pools (`CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED`), memory is freed by cuMemFreeAsync
/// in a separate stream, which waits for no GPU kernel. Otherwise memory is freed by cuMemFree, which waits
/// for all work of the GPU. The memory itself never comes from a memory pool, because such memory cannot be pinned.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::memory::{CudaAllocator, DeviceAllocator};
/// let memory = CudaAllocator::new(0)?.allocate(1 << 20)?;
/// println!("1 MiB of GPU 0 at {:#x}", memory.address());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CudaAllocator {
    gpu: Arc<Gpu>,
}

impl CudaAllocator {
    /// Returns an allocator for the GPU with this number, among those that `CUDA_VISIBLE_DEVICES` shows. The call
    /// initializes CUDA, and retains the GPU's primary context, which CUDA creates if there is none.
    ///
    /// # Errors
    /// [`GdrError::NoCuda`](crate::GdrError::NoCuda), [`GdrError::CudaTooOld`](crate::GdrError::CudaTooOld),
    /// [`GdrError::Cuda`](crate::GdrError::Cuda) with CUDA's error.
    pub fn new(gpu: i32) -> Result<CudaAllocator> {
        let gpu = Arc::new(Gpu::open(gpu)?);
        Ok(CudaAllocator { gpu })
    }
}

impl DeviceAllocator for CudaAllocator {
    fn allocate(&self, len: usize) -> Result<Box<dyn DeviceMemory>> {
        let memory = self.gpu.alloc(len)?;
        Ok(Box::new(CudaMemory { gpu: Arc::clone(&self.gpu), memory, len }))
    }
}

/// Memory that the CUDA driver has allocated.
#[derive(Debug)]
struct CudaMemory {
    gpu: Arc<Gpu>,
    memory: Allocation,
    len: usize,
}

// SAFETY: the allocation stays until this value is dropped, and safe code reaches it only through this value.
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
        // SAFETY: the memory comes from `alloc` or `alloc_host` of this GPU, and its owner no longer uses it.
        if let Err(error) = unsafe { self.gpu.free(&self.memory) } {
            let address = self.memory.address;
            log::warn!("memory at {address:#x} is not freed: {error}");
        }
    }
}

/// Zeroed, page-locked host memory that GPUs reach at a device address, for
/// [`Backend::HostMemory`](crate::Backend::HostMemory). Dropping it frees the memory.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::memory::HostMemory;
/// use gdrcopy::memory::MapOptions;
/// use gdrcopy::{Backend, Gdr, Mapped};
///
/// let gdr = Gdr::options().backend(Backend::HostMemory).open()?;
/// let mapping = gdr.map_owned(HostMemory::alloc(1 << 20)?, MapOptions::default())?;
/// mapping.write(0, b"GPU kernels read this over PCIe")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HostMemory {
    memory: CudaMemory,
}

impl HostMemory {
    /// Allocates `len` bytes, which all contexts can use. The call retains the primary context of the calling thread's
    /// GPU, or of GPU 0 if the thread has no context. A reset of that GPU frees the memory. The call initializes CUDA
    /// if the process has not done so, and may wait for the GPU.
    ///
    /// # Errors
    /// [`GdrError::EmptyRange`](crate::GdrError::EmptyRange); [`GdrError::NoCuda`](crate::GdrError::NoCuda),
    /// [`GdrError::CudaTooOld`](crate::GdrError::CudaTooOld) below CUDA 11.7; [`GdrError::Cuda`](crate::GdrError::Cuda)
    /// with CUDA's error, such as `ENOMEM` when host memory cannot be page-locked.
    pub fn alloc(len: usize) -> Result<HostMemory> {
        if len == 0 {
            return Err(GdrError::EmptyRange.into());
        }
        let gpu = Arc::new(Gpu::of_thread()?);
        let memory = gpu.alloc_host(len)?;
        Ok(HostMemory { memory: CudaMemory { gpu, memory, len } })
    }

    /// The CPU address of the memory. An access through it is unsafe, because the memory must be alive, and GPU kernels
    /// may write it at any time.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.memory.memory.host)
    }
}

// SAFETY: the allocation stays until this value is dropped. Safe code gets the CPU address, but cannot access the
// memory through it.
unsafe impl DeviceMemory for HostMemory {
    fn address(&self) -> u64 {
        self.memory.address()
    }

    fn len(&self) -> usize {
        self.memory.len()
    }
}
