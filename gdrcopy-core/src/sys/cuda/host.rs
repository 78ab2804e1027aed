//! Host memory that CUDA has mapped for GPUs.

use std::ffi::c_uint;
use std::ptr::{self, NonNull};

use super::context::Home;
use super::{Driver, PointerAttribute, load};
use crate::error::{Error, Result};
use crate::sys::fork;
use crate::types::cuda_version::EXPORTS_DMA_BUFS;

/// Values of the attribute MEMORY_TYPE.
const HOST: u64 = 1;

/// Flags of cuMemHostAlloc for memory usable in all contexts, mapped for the GPUs.
const PORTABLE: c_uint = 1;
const MAPPED: c_uint = 2;

impl Driver {
    /// CPU address of the `len` bytes of mapped host memory at a device address.
    ///
    /// # Errors
    /// [`Error::NotHostMemory`] if not all of it is such memory.
    pub fn host_address(&self, device_address: u64, len: usize) -> Result<NonNull<u8>> {
        // CUDA answers with an error for memory that it does not know.
        if self.is_host_memory(device_address, len) != Ok(true) {
            return Err(Error::NotHostMemory);
        }
        let address = self.pointer_attribute(PointerAttribute::HostPointer, device_address)?;
        match NonNull::new(ptr::with_exposed_provenance_mut(address as usize)) {
            Some(address) => Ok(address),
            None => Err(Error::NotHostMemory),
        }
    }

    /// Returns whether all `len` bytes from an address on are one range of host memory that CUDA allocated or
    /// registered. With unified addressing, CPU addresses will do.
    fn is_host_memory(&self, address: u64, len: usize) -> Result<bool> {
        use PointerAttribute::{IsManaged, MemoryType, RangeSize, RangeStart};
        if self.pointer_attribute(MemoryType, address)? != HOST || self.pointer_attribute(IsManaged, address)? != 0 {
            return Ok(false);
        }
        let start = self.pointer_attribute(RangeStart, address)?;
        let size = self.pointer_attribute(RangeSize, address)?;
        let end = u128::from(address) + len as u128;
        Ok(start <= address && end <= u128::from(start) + u128::from(size))
    }
}

/// Zeroed, page-locked host memory that GPUs reach at a device address, freed when dropped.
#[derive(Debug)]
pub struct RawHostMemory {
    address: NonNull<u8>,
    device_address: u64,
    len: usize,
    home: Home,
    /// CUDA's number of it, which is not found any more once its context is gone, and the memory with it.
    id: u64,
}

// SAFETY: owns memory and a context handle, which CUDA accepts from all threads.
unsafe impl Send for RawHostMemory {}
// SAFETY: `&RawHostMemory` gives out numbers only.
unsafe impl Sync for RawHostMemory {}

impl RawHostMemory {
    /// Allocates `len` bytes in the calling thread's context, or in the primary one of GPU 0 if the thread has none.
    pub fn alloc(len: usize) -> Result<RawHostMemory> {
        if len == 0 {
            return Err(Error::EmptyRange);
        }
        fork::enter()?;
        let driver = load(EXPORTS_DMA_BUFS)?;
        driver.init()?;
        let home = Home::of_thread(driver)?;
        let (address, device_address, id) = home.enter(|| driver.alloc_host(len))?;
        // SAFETY: `len` bytes were allocated at this address, and no one else has it.
        unsafe { ptr::write_bytes(address.as_ptr(), 0, len) };
        Ok(RawHostMemory { address, device_address, len, home, id })
    }

    /// Where GPU kernels and pins find it.
    pub fn device_address(&self) -> u64 {
        self.device_address
    }

    /// Where the CPU finds it. Using it is unsafe, because the memory must be alive, and GPU kernels may write it at
    /// any time.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// Bytes in it.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for RawHostMemory {
    fn drop(&mut self) {
        if !self.home.owner().is_current() {
            return;
        }
        let driver = self.home.driver();
        if driver.buffer_id(self.address.addr().get() as u64) != Ok(self.id) {
            return;
        }
        let freed = self.home.enter(|| {
            // SAFETY: allocated in `alloc`; pins of it are gone: contract of `RawGdr::pin`.
            let result = unsafe { driver.cu.host_free()?(self.address.as_ptr().cast()) };
            driver.check("cuMemFreeHost", result)
        });
        if let Err(error) = freed {
            log::warn!("{} bytes of host memory are not freed: {error}", self.len);
        }
    }
}

impl Driver {
    /// CPU and device address of new host memory, and CUDA's number of it. A context must be current.
    fn alloc_host(&self, len: usize) -> Result<(NonNull<u8>, u64, u64)> {
        let mut address = ptr::null_mut();
        let mut device_address = 0;
        let find = self.cu.host_device_pointer()?;
        let free = self.cu.host_free()?;
        // SAFETY: the outputs are local variables.
        unsafe {
            let result = self.cu.host_alloc()?(&mut address, len, PORTABLE | MAPPED);
            self.check("cuMemHostAlloc", result)?;
            let result = find(&mut device_address, address, 0);
            let described = match self.check("cuMemHostGetDevicePointer", result) {
                Ok(()) => self.buffer_id(address.addr() as u64),
                Err(error) => Err(error),
            };
            match (described, NonNull::new(address.cast())) {
                (Ok(id), Some(address)) => Ok((address, device_address, id)),
                (Ok(_), None) => Err(Error::NotHostMemory),
                (Err(error), _) => {
                    free(address);
                    Err(error)
                }
            }
        }
    }
}
