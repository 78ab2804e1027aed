//! GPU memory that the crate cudarc owns.

use std::fmt::Debug;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, result};

use crate::error::Result;
use crate::memory::device::{DeviceAllocator, DeviceMemory};
use gdrcopy_core::error::of_cuda;

/// A slice of plain data, for [`Gdr::map_owned`](crate::Gdr::map_owned) and
/// [`Pool::of_memory`](crate::Pool::of_memory).
///
/// If the GPU supports memory pools, the slices of `CudaStream::alloc`, `alloc_zeros` and `clone_htod` cannot be
/// pinned. They are in CUDA's asynchronous pool, so pinning them fails with `EINVAL`. [`CudarcAllocator`] makes slices
/// that can be pinned; so does `CudaStream::upgrade_device_ptr` from memory of `cudarc::driver::result::malloc_sync`.
// SAFETY: a `CudaSlice` owns its allocation. Safe code reaches the bytes only by a reference to the slice, and the
// mapping or pool that owns the slice gives out none. Once it gives the slice back, any bytes are valid for a `Pod`.
unsafe impl<T: Pod + Debug> DeviceMemory for CudaSlice<T> {
    fn address(&self) -> u64 {
        self.device_ptr(self.stream()).0
    }

    fn len(&self) -> usize {
        self.num_bytes()
    }
}

/// Allocates `CudaSlice<u8>` in the context of a stream by cuMemAlloc, so that the slices can be pinned. cudarc frees
/// them by cuMemFreeAsync in this stream if the GPU supports memory pools, and otherwise by cuMemFree.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use cudarc::driver::CudaContext;
/// use gdrcopy::memory::CudarcAllocator;
/// use gdrcopy::{Gdr, Pool};
/// let stream = CudaContext::new(0)?.new_stream()?;
/// let pool = Pool::new(&Gdr::open()?, CudarcAllocator::new(stream));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CudarcAllocator {
    stream: Arc<CudaStream>,
}

impl CudarcAllocator {
    /// Returns an allocator that allocates in the context of this stream. If the GPU supports memory pools, the memory
    /// is also freed in the stream, after all work that was submitted to the stream before.
    pub fn new(stream: Arc<CudaStream>) -> CudarcAllocator {
        CudarcAllocator { stream }
    }
}

impl DeviceAllocator for CudarcAllocator {
    fn allocate(&self, len: usize) -> Result<Box<dyn DeviceMemory>> {
        let bound = self.stream.context().bind_to_thread();
        bound.map_err(|error| of_cuda("cuCtxSetCurrent", error.0 as _))?;
        // SAFETY: the memory is owned by the slice below.
        let address = unsafe { result::malloc_sync(len) };
        let address = address.map_err(|error| of_cuda("cuMemAlloc", error.0 as _))?;
        // SAFETY: `len` bytes are allocated at the address, and every byte is a valid u8. Safe code cannot read them
        // through the slice, because it gets only a `DeviceMemory`.
        Ok(Box::new(unsafe { self.stream.upgrade_device_ptr::<u8>(address, len) }))
    }
}
