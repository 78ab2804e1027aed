//! Host memory that CUDA has mapped for GPUs.

use std::ptr::{self, NonNull};

use super::{Driver, PointerAttribute};
use crate::error::{Error, Result};

/// Values of the attribute MEMORY_TYPE.
const HOST: u64 = 1;

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
