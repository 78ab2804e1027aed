//! Host memory in place of mapped GPU memory.

use std::ptr::NonNull;

use gdrcopy_core::sys::fork;
use gdrcopy_core::sys::mmap::Region;

#[cfg(test)]
use crate::access::MappedSlice;

/// Zeros in place of mapped GPU memory.
pub(crate) struct Memory {
    region: Region,
    /// Used by its address only.
    _zeros: Vec<u8>,
}

impl Memory {
    /// This many zeros, at a multiple of `align` bytes, a power of two of at least 64.
    pub(super) fn aligned(bytes: usize, align: usize) -> Memory {
        // Copy routines read whole lines.
        let mut zeros = vec![0; align + bytes.next_multiple_of(64)];
        let start = zeros.as_mut_ptr();
        let start = start.wrapping_add(start.align_offset(align));
        Memory::at(NonNull::new(start).expect("not at 0"), bytes, zeros)
    }

    fn at(address: NonNull<u8>, bytes: usize, zeros: Vec<u8>) -> Memory {
        // Otherwise another test may do it later, as if the process were another one then.
        fork::enter().expect("memory for a page");
        Memory {
            // SAFETY: `_zeros` keeps these bytes, which nothing else accesses.
            region: unsafe { Region::borrow(address, bytes) },
            _zeros: zeros,
        }
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }
}

#[cfg(test)]
impl Memory {
    pub(crate) fn new(bytes: usize) -> Memory {
        Memory::aligned(bytes, 64)
    }

    pub(crate) fn slice(&self) -> MappedSlice<'_> {
        let (len, kind) = (self.region.len(), gdrcopy_core::types::MappingType::WriteCombining);
        MappedSlice::of_region(&self.region, 0, len, 0, kind)
    }
}
