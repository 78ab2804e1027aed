//! Mapped GPU memory together with its allocation.

use std::fmt;
use std::mem;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::gdr::Gdr;
use crate::mapping::Mapping;
use crate::memory::DeviceMemory;
use crate::sys::fork::Owner;
use crate::types::{GPU_PAGE_SIZE as PAGE, MapFlag, PinFlags};

/// GPU memory that is pinned and mapped, and freed after that.
pub(crate) struct MappedMemory {
    // Dropped in this order: unmapped and unpinned before the memory is freed.
    mapping: Mapping,
    /// `None` only while being dropped.
    memory: Option<Box<dyn DeviceMemory>>,
    /// Device address of the mapping's byte 0.
    address: u64,
    owner: Owner,
}

/// The whole GPU pages of a range of memory.
pub(crate) fn whole_pages(memory: &dyn DeviceMemory) -> Result<Range<u64>> {
    let (start, len) = (memory.address(), memory.len() as u64);
    let end = start.checked_add(len).ok_or(Error::RangeOverflow)? / PAGE * PAGE;
    let start = start.checked_next_multiple_of(PAGE);
    let start = start.ok_or(Error::RangeOverflow)?;
    match start < end {
        true => Ok(start..end),
        false => Err(Error::EmptyRange),
    }
}

impl MappedMemory {
    /// Pins and maps `range`, which is whole pages of `memory`.
    pub(crate) fn new(
        gdr: &Gdr,
        memory: Box<dyn DeviceMemory>,
        range: Range<u64>,
        pin_flags: PinFlags,
        map_flag: MapFlag,
    ) -> Result<MappedMemory> {
        let pages = whole_pages(&*memory)?;
        assert!(pages.start <= range.start && range.end <= pages.end);
        let len = (range.end - range.start) as usize;
        // SAFETY: the range is part of `memory`, which is kept until the mapping is gone: contract of
        // `DeviceMemory`.
        let pin = unsafe { gdr.pin(range.start, len, pin_flags) }?;
        Ok(MappedMemory {
            mapping: pin.map(len, map_flag)?,
            memory: Some(memory),
            address: range.start,
            owner: Owner::current(),
        })
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Device address of the mapping's byte 0.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            // The memory is the parent's.
            mem::forget(self.memory.take());
        }
    }
}

impl fmt::Debug for MappedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{:#x}", self.address, self.mapping.len())
    }
}
