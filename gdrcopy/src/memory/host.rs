//! Host memory that CUDA has mapped for GPUs.

use crate::error::Result;
use crate::memory::device::DeviceMemory;
use gdrcopy_core::sys::cuda::host::RawHostMemory;

/// Zeroed, page-locked host memory that GPUs reach at a device address, for
/// [`Backend::HostMemory`](crate::Backend::HostMemory). It is freed when dropped.
///
/// ```
/// # mod gpu { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs")); }
/// # gpu::run(|gpu| {
/// use gdrcopy::memory::HostMemory;
/// use gdrcopy::memory::MapOptions;
/// use gdrcopy::{Backend, Gdr, Mapped};
///
/// let gdr = Gdr::options().backend(Backend::HostMemory).open()?;
/// let mapping = gdr.map_owned(HostMemory::alloc(1 << 20)?, MapOptions::default())?;
/// mapping.write(0, b"GPU kernels read this over PCIe")?;
/// # Ok(())
/// # });
/// ```
#[derive(Debug)]
pub struct HostMemory {
    raw: RawHostMemory,
}

impl HostMemory {
    /// Allocates `len` bytes in the calling thread's context, or in the primary one of GPU 0 if the thread has none. A
    /// primary context is kept; if the device is reset, or a context of cuCtxCreate destroyed, the memory is gone.
    /// Initializes CUDA if need be. May wait for the GPU.
    ///
    /// # Errors
    /// [`GdrError::EmptyRange`](crate::GdrError::EmptyRange); [`GdrError::NoCuda`](crate::GdrError::NoCuda),
    /// [`GdrError::CudaTooOld`](crate::GdrError::CudaTooOld) below CUDA 11.7; [`GdrError::Cuda`](crate::GdrError::Cuda)
    /// with CUDA's error, such as `ENOMEM` when host memory cannot be page-locked.
    pub fn alloc(len: usize) -> Result<HostMemory> {
        let raw = RawHostMemory::alloc(len)?;
        Ok(HostMemory { raw })
    }

    /// Where the CPU finds it. Using it is unsafe, because the memory must be alive, and GPU kernels may write it at
    /// any time.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.raw.as_mut_ptr()
    }
}

// SAFETY: it is allocated until it is dropped, and safe code has no access to it.
unsafe impl DeviceMemory for HostMemory {
    fn address(&self) -> u64 {
        self.raw.device_address()
    }

    fn len(&self) -> usize {
        self.raw.len()
    }
}
