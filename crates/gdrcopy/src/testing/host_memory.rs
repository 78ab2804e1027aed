//! Host memory in place of mapped GPU memory.

use std::ptr::NonNull;

use gdrcopy_core::sys::fork;
use gdrcopy_core::sys::mmap::Region;

#[cfg(test)]
use crate::access::MappedSlice;

/// Host memory, at first all zeros, in place of mapped GPU memory.
pub(crate) struct Memory {
    region: Region,
    /// Owns the memory. The code accesses the memory only by the address in `region`, and never by this field.
    _zeros: Zeros,
}

/// The memory is mapped, and does not come from Rust's allocator, because threads may write to one place at the same
/// time by accesses of different sizes, as they do with GPU memory. In Rust's own memory, that would be a data race.
#[cfg(not(miri))]
type Zeros = memmap2::MmapMut;
/// Miri cannot map memory. The tests that it runs make no accesses for which the memory must be mapped.
#[cfg(miri)]
type Zeros = Vec<u8>;

#[cfg(not(miri))]
fn zeros(len: usize) -> Zeros {
    let mut options = memmap2::MmapOptions::new();
    options.len(len).no_reserve_swap().map_anon().expect("address space for the memory of a GPU")
}

#[cfg(miri)]
fn zeros(len: usize) -> Zeros {
    vec![0; len]
}

impl Memory {
    /// Returns `bytes` zeros that start at a multiple of `align`, which is a power of two and at least 64.
    pub(crate) fn aligned(bytes: usize, align: usize) -> Memory {
        // The size is rounded up to whole cache lines, because copy routines read whole lines.
        let mut zeros = zeros(align + bytes.next_multiple_of(64));
        let start = zeros.as_mut_ptr();
        let start = start.wrapping_add(start.align_offset(align));
        let address = NonNull::new(start).expect("not at 0");
        // The region stores the epoch, a number that identifies this process, which the first call of `fork::enter`
        // sets. If another test made that call later, the region would seem to belong to another process.
        fork::enter().expect("memory for a page");
        Memory {
            // SAFETY: `_zeros` owns these bytes, and nothing else accesses them.
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
    pub(crate) fn slice(&self) -> MappedSlice<'_> {
        let mapping_type = gdrcopy_core::types::MappingType::WriteCombining;
        MappedSlice::of_region(&self.region, 0, self.region.len(), 0, mapping_type)
    }
}
