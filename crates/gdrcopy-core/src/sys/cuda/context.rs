//! Finds and sets the CUDA context that is current in a thread, and finds the one in which memory was allocated.

use std::ops::Range;
use std::ptr;

use super::{Context, Device, Driver, PointerAttribute};
use crate::error::Result;
use crate::types::GPU_PAGE_SIZE;

/// The GPU and the context of a range of GPU memory.
#[derive(Debug)]
pub struct Place {
    pub device: Device,
    /// The context that the memory was allocated in; null if it is unknown, or the memory belongs to no context.
    context: Context,
    /// True if CUDA knows an address in the range.
    pub is_known: bool,
}

/// Returns the addresses at which to look for an allocation in a range: the last address of the range, and all
/// addresses in its first and last 64 KiB at which an allocation may start.
fn addresses_inside(address: u64, len: u64) -> impl Iterator<Item = u64> {
    /// CUDA's allocations start at multiples of this number of bytes.
    const UNIT: u64 = 512;
    let end = address + len;
    let first = address..end.min(address.saturating_add(GPU_PAGE_SIZE));
    let last = first.end.max(end.saturating_sub(GPU_PAGE_SIZE))..end;
    std::iter::once(end.saturating_sub(1)).chain(multiples(UNIT, first)).chain(multiples(UNIT, last))
}

/// Returns the multiples of `unit` in a range.
fn multiples(unit: u64, range: Range<u64>) -> impl Iterator<Item = u64> {
    let first = range.start.checked_next_multiple_of(unit).unwrap_or(range.end);
    (first..range.end).step_by(unit as usize)
}

impl Driver {
    /// Finds the GPU and the context of the memory in a range. The ends of the range may lie in no allocation, because
    /// programs round buffers out to GPU pages, and CUDA exports such a range if there is an allocation in it. If CUDA
    /// knows no address in the first and last 64 KiB, guesses: the calling thread's GPU or, without one, the only GPU.
    ///
    /// # Errors
    /// CUDA's answer for the first address, if the GPU cannot be guessed either.
    pub fn place_of(&self, address: u64, len: u64) -> Result<Place> {
        let first_answer = match self.place_of_address(address) {
            Ok(place) => return Ok(place),
            Err(error) => error,
        };
        for inside in addresses_inside(address, len) {
            if let Ok(place) = self.place_of_address(inside) {
                return Ok(place);
            }
        }
        let guess = match self.current_device()? {
            None => self.only_device(),
            current => current,
        };
        match guess {
            Some(device) => Ok(Place { device, context: ptr::null_mut(), is_known: false }),
            None => Err(first_answer),
        }
    }

    fn place_of_address(&self, address: u64) -> Result<Place> {
        let ordinal = self.pointer_attribute(PointerAttribute::DeviceOrdinal, address)?;
        let device = self.device(ordinal as i32)?;
        Ok(Place { device, context: self.context_of(address), is_known: true })
    }

    /// Calls `work` while a context of the device is current in the calling thread, and then restores the thread's
    /// context. Prefers the memory's own context to the device's primary context, which might have to be created. Its
    /// creation takes GPU memory and hundreds of milliseconds.
    pub(super) fn in_context<T>(&self, place: &Place, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let &Place { device, context, .. } = place;
        if self.current_device()? == Some(device) {
            return work();
        }
        if !context.is_null() {
            return self.with_current(context, work);
        }
        let result = self.with_current(self.retain(device)?, work);
        let released = self.release(device);
        let value = result?;
        released?;
        Ok(value)
    }

    /// Calls `work` while this context is current in the calling thread, and then restores the thread's context.
    pub(super) fn with_current<T>(&self, context: Context, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = self.current()?;
        if before == context {
            return work();
        }
        self.set_current(context)?;
        let result = work();
        let restored = self.set_current(before);
        let value = result?;
        restored?;
        Ok(value)
    }

    #[inline(never)]
    fn set_current(&self, context: Context) -> Result<()> {
        // SAFETY: the context exists: it is retained, or CUDA has just returned it for the thread or the memory.
        let result = unsafe { self.cu.set_context()?(context) };
        self.check("cuCtxSetCurrent", result)
    }

    /// Returns the context that is current in the calling thread, or null.
    #[inline(never)]
    fn current(&self) -> Result<Context> {
        let mut context = ptr::null_mut();
        // SAFETY: the output is a local variable.
        self.check("cuCtxGetCurrent", unsafe { self.cu.context()?(&mut context) })?;
        Ok(context)
    }

    /// Returns CUDA's number of a context. No other context gets the number, not even one at the same address.
    ///
    /// # Errors
    /// [`Error::NoCudaFunction`](crate::Error::NoCudaFunction) before CUDA 12.
    pub(super) fn context_id(&self, context: Context) -> Result<u64> {
        let mut id = 0;
        // SAFETY: the output is a local variable; CUDA looks the context up.
        let result = unsafe { self.cu.context_id()?(context, &mut id) };
        self.check("cuCtxGetId", result)?;
        Ok(id)
    }

    /// Returns the device of the calling thread's current context; `None` if there is none, or it cannot be found out.
    pub(super) fn current_device(&self) -> Result<Option<Device>> {
        if self.current()?.is_null() {
            return Ok(None);
        }
        // Stand-ins for libcuda may lack this function. Then the context might belong to any device.
        let Ok(context_device) = self.cu.context_device() else {
            return Ok(None);
        };
        let mut device = 0;
        // SAFETY: the output is a local variable.
        let result = unsafe { context_device(&mut device) };
        self.check("cuCtxGetDevice", result)?;
        Ok(Some(Device(device)))
    }

    fn only_device(&self) -> Option<Device> {
        match self.device_count_if_initialized() {
            Ok(Some(1)) => self.device(0).ok(),
            _ => None,
        }
    }

    /// Returns the device's primary context, which lives until `release`.
    pub(super) fn retain(&self, device: Device) -> Result<Context> {
        let mut context = ptr::null_mut();
        // SAFETY: the output is a local variable.
        let result = unsafe { self.cu.retain_context()?(&mut context, device.0) };
        self.check("cuDevicePrimaryCtxRetain", result)?;
        Ok(context)
    }

    pub(super) fn release(&self, device: Device) -> Result<()> {
        // SAFETY: CUDA counts how often a context is retained.
        let result = unsafe { self.cu.release_context()?(device.0) };
        self.check("cuDevicePrimaryCtxRelease", result)
    }

    /// Returns the context of the memory at this address; null if it has none (memory from cuMemCreate or a pool).
    fn context_of(&self, address: u64) -> Context {
        match self.pointer_attribute(PointerAttribute::Context, address) {
            Ok(context) => ptr::with_exposed_provenance_mut(context as usize),
            Err(_) => ptr::null_mut(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_range_are_searched() {
        fn searched(address: u64, len: u64) -> Vec<u64> {
            addresses_inside(address, len).collect()
        }
        assert_eq!(searched(0x10000, 0), [0xffff]);
        assert_eq!(searched(0x10001, 0x400), [0x10400, 0x10200, 0x10400]);
        let page: Vec<_> = (0x10000..0x20000).step_by(512).collect();
        assert_eq!(searched(0x10000, 0x10000)[1..], page);
        let long = searched(0x10000, 0x100_0000);
        assert_eq!(long.len(), 1 + 2 * page.len());
        assert_eq!(long[1..129], page);
        assert_eq!(long[129], 0x100_0000);
        assert_eq!(long[256], 0x100_fe00);
        assert_eq!(searched(u64::MAX - 0x1ff, 0x1ff), [u64::MAX - 1, u64::MAX - 0x1ff]);
    }
}
