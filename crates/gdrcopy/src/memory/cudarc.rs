//! GPU memory of the crate cudarc.

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
/// The slices of `CudaStream::alloc`, `alloc_zeros` and `clone_htod` cannot be pinned where the GPU supports memory
/// pools. They are in CUDA's asynchronous pool, and pinning fails with `EINVAL`. [`CudarcAllocator`] allocates memory
/// that can; so do `cudarc::driver::result::malloc_sync` and `CudaStream::upgrade_device_ptr`.
// SAFETY: a `CudaSlice` owns its allocation. Safe code reaches it only by a reference to the slice, and its new owner
// gives none out. Once it is given back, any bytes are values of a `Pod`.
unsafe impl<T: Pod + Debug> DeviceMemory for CudaSlice<T> {
    fn address(&self) -> u64 {
        self.device_ptr(self.stream()).0
    }

    fn len(&self) -> usize {
        self.num_bytes()
    }
}

/// Allocates `CudaSlice<u8>` in the context of a stream, by cuMemAlloc, so that they can be pinned. cudarc frees
/// them in the order of the stream where the GPU supports memory pools, and otherwise, as in TCC mode, by
/// cuMemFree.
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
    /// Allocates in the context of this stream, and frees in the order of this stream.
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
        // SAFETY: the address is that of `len` bytes, and every byte is a valid u8. Safe code cannot read them through
        // the slice, which the pool keeps to itself.
        Ok(Box::new(unsafe { self.stream.upgrade_device_ptr::<u8>(address, len) }))
    }
}
