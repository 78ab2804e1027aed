//! The traits of GPU memory and its allocators.

use std::fmt;

use crate::error::Result;

/// A value that owns GPU memory. The memory may be used until the value is dropped. The drop also frees the memory,
/// except that of a [`RawMemory`].
///
/// [`RawMemory`] and [`HostMemory`](crate::memory::HostMemory) implement this trait. So do the memory that a
/// [`DeviceAllocator`] returns and, with the feature `cudarc-0-19`, `CudaSlice` of the crate cudarc.
///
/// ```
/// use gdrcopy::memory::DeviceMemory;
///
/// /// A CUDA allocation that another allocator has made.
/// #[derive(Debug)]
/// struct Buffer {
///     address: u64, // as cuMemAlloc has returned it
///     len: usize,
/// }
/// // SAFETY: this value owns the allocation, and no safe code accesses the memory in another manner.
/// unsafe impl DeviceMemory for Buffer {
///     fn address(&self) -> u64 { self.address }
///     fn len(&self) -> usize { self.len }
/// }
/// ```
///
/// # Safety
/// From construction to drop, and for any thread:
/// - `address` and `len` always return the same values;
/// - the range is GPU memory that stays allocated;
/// - writes to the range cannot break memory safety, because safe Rust code accesses the range only through this
///   value.
#[expect(clippy::len_without_is_empty, reason = "an empty one is of no use")]
pub unsafe trait DeviceMemory: fmt::Debug + Send + Sync {
    /// The device address of the first byte.
    fn address(&self) -> u64;

    /// The length of the memory in bytes.
    fn len(&self) -> usize;
}

/// Allocates GPU memory for the chunks of a [`Pool`](crate::Pool).
///
/// ```
/// use gdrcopy::memory::{CudaAllocator, DeviceAllocator, DeviceMemory};
///
/// /// Counts what it allocates.
/// #[derive(Debug)]
/// struct Counted(CudaAllocator, std::sync::atomic::AtomicUsize);
/// impl DeviceAllocator for Counted {
///     fn allocate(&self, len: usize) -> gdrcopy::Result<Box<dyn DeviceMemory>> {
///         self.1.fetch_add(len, std::sync::atomic::Ordering::Relaxed);
///         self.0.allocate(len)
///     }
/// }
/// ```
pub trait DeviceAllocator: fmt::Debug + Send + Sync {
    /// Allocates at least `len` bytes of memory that can be pinned, at any alignment. Their contents are not specified.
    ///
    /// A pool panics if it gets fewer bytes, and waits forever if its allocator allocates from the pool itself.
    ///
    /// # Errors
    /// The error of the allocator; with CUDA, [`GdrError::Cuda`](crate::GdrError::Cuda).
    fn allocate(&self, len: usize) -> Result<Box<dyn DeviceMemory>>;
}

/// GPU memory that the caller owns, a `CUdeviceptr` and a length.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::{Gdr, Pool};
/// use gdrcopy::memory::RawMemory;
/// let address = gpu.device_pointer(); // from cuMemAlloc
/// // SAFETY: the 2 MiB stay allocated, and are used through the pool only.
/// let memory = unsafe { RawMemory::new(address, 2 << 20) };
/// let pool = Pool::of_memory(&Gdr::open()?, memory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RawMemory {
    address: u64,
    len: usize,
}

impl RawMemory {
    /// Returns the `len` bytes from device address `address` (a `CUdeviceptr`) on.
    ///
    /// # Safety
    /// The range must stay allocated until this value and all buffers of a pool made of it are dropped. Until then,
    /// only GPU kernels, CUDA, and the mapping or pool of this value may write to the range (contract of
    /// [`DeviceMemory`]).
    pub unsafe fn new(address: u64, len: usize) -> RawMemory {
        RawMemory { address, len }
    }
}

// SAFETY: contract of `RawMemory::new`.
unsafe impl DeviceMemory for RawMemory {
    fn address(&self) -> u64 {
        self.address
    }

    fn len(&self) -> usize {
        self.len
    }
}

// SAFETY: the memory in the box meets the contract.
unsafe impl<M: DeviceMemory + ?Sized> DeviceMemory for Box<M> {
    fn address(&self) -> u64 {
        (**self).address()
    }

    fn len(&self) -> usize {
        (**self).len()
    }
}
