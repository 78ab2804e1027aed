//! A mapping of pinned GPU memory into the CPU's address space.
#![forbid(unsafe_code)]

use crate::backend::MappingGuard;
use crate::copy::mixed;
use crate::error::{Error, Result};
use crate::sys::mmap::Region;
use crate::types::MappingType;

/// GPU memory that is mapped in this process. The mapping keeps its pin alive, and is unmapped when dropped.
#[derive(Debug)]
pub struct RawMapping {
    // The fields are dropped in this order, so that the memory is unmapped before its pin is released.
    region: Region,
    #[expect(dead_code, reason = "for its drop")]
    of_pin: MappingGuard,
    device_address: u64,
    /// The number of bytes from the start of the region, which is the start of a page, to the mapping's byte 0.
    head: u32,
    mapping_type: MappingType,
    len: usize,
}

impl RawMapping {
    pub(crate) fn new(
        region: Region,
        mapping_type: MappingType,
        of_pin: MappingGuard,
        device_address: u64,
        head: usize,
        len: usize,
    ) -> RawMapping {
        mixed::record(mapping_type);
        RawMapping { region, of_pin, device_address, head: head as u32, mapping_type, len }
    }

    /// The device address of the mapping's byte 0, which is the pin's address.
    #[inline]
    pub fn device_address(&self) -> u64 {
        self.device_address
    }

    /// The mapped CPU addresses.
    #[inline]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The offset of the mapping's byte 0 in the region, in bytes.
    #[inline]
    pub fn head(&self) -> usize {
        self.head as usize
    }

    /// The CPU address of the mapping's byte 0.
    #[inline]
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.first_page().wrapping_add(self.head())
    }

    /// The CPU address of the first mapped page, whose device address is [`Info::va`](crate::types::Info::va).
    #[inline]
    pub fn first_page(&self) -> *mut u8 {
        self.region.address()
    }

    /// The number of bytes that the caller asked to map.
    #[expect(clippy::len_without_is_empty, reason = "no mapping is empty")]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The mapping's type, which says how the CPU caches it.
    #[inline]
    pub fn mapping_type(&self) -> MappingType {
        self.mapping_type
    }

    /// Unmaps the GPU memory and leaves its addresses reserved ([`Region::retire`]), so that accesses by stale pointers
    /// raise SIGSEGV as long as the process lives.
    pub fn retire(mut self) -> std::result::Result<(), (RawMapping, Error)> {
        end(self.region.retire(), self)
    }

    /// Unmaps the GPU memory. After an error, the mapping is unchanged.
    pub fn unmap(mut self) -> std::result::Result<(), (RawMapping, Error)> {
        end(self.region.unmap(), self)
    }
}

fn end(result: Result<()>, mapping: RawMapping) -> std::result::Result<(), (RawMapping, Error)> {
    result.map_err(|error| (mapping, error))
}
