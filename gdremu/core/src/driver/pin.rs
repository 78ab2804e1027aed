//! A pinned range of GPU memory, and the list of an open device's pins.
#![forbid(unsafe_code)]

use crate::abi::MappingType;
use crate::config::DriverConfig;
use crate::errno::Errno;
use crate::gpu::PageTableId;

pub(super) struct Pin {
    pub(super) handle: u64,
    /// The first pinned address: the requested address, rounded down to a GPU page.
    pub(super) va: u64,
    /// The number of bytes between `va` and the requested address.
    pub(super) offset: u64,
    pub(super) mapped_size: u64,
    pub(super) pinned_size: u64,
    /// The page table, which lists the pinned memory; `None` once this memory was freed while it was pinned.
    pub(super) table: Option<PageTableId>,
    pub(super) force_pcie: bool,
    /// The duration of the pin call in the GPU driver, in cycles of [`super::CLOCK_KHZ`].
    pub(super) cycles: u64,
    /// The type that the last REQ_MAPPING_TYPE requested. [`MappingType::None`] means the platform's default type.
    pub(super) requested: MappingType,
    pub(super) mapping: Option<Mapping>,
}

/// The driver's record of a pin's mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub(super) mapping_type: MappingType,
    pub(super) addr: usize,
    pub(super) len: usize,
    /// The number of the mmap call that made this mapping. An address range that remains of an earlier mapping of the
    /// pin has another number.
    pub(super) origin: u64,
}

/// The pins of one open device, the oldest first.
pub(super) struct Pins {
    pub(super) list: Vec<Pin>,
    next_handle: u64,
    /// True if a handle that does not exist finds the oldest pin, which is a defect of NVIDIA's gdrdrv.
    or_oldest: bool,
}

impl Pins {
    pub(super) fn new(config: &DriverConfig) -> Self {
        Pins { list: Vec::new(), next_handle: config.handle_base, or_oldest: config.module_defects }
    }

    /// Returns the handle for a new pin. The next pin's handle will be higher by `step`.
    pub(super) fn take_handle(&mut self, step: u64) -> u64 {
        let handle = self.next_handle;
        self.next_handle = handle.wrapping_add(step);
        handle
    }

    pub(super) fn find(&mut self, handle: u64) -> Result<&mut Pin, Errno> {
        let i = self.position(handle)?;
        Ok(&mut self.list[i])
    }

    pub(super) fn remove(&mut self, handle: u64) -> Result<Pin, Errno> {
        let i = self.position(handle)?;
        Ok(self.list.remove(i))
    }

    fn position(&self, handle: u64) -> Result<usize, Errno> {
        // Before gdrdrv 2.4, several pins can have the same handle. gdrdrv searches its list from the newest pin on.
        match self.list.iter().rposition(|pin| pin.handle == handle) {
            Some(i) => Ok(i),
            None if self.or_oldest && !self.list.is_empty() => Ok(0),
            None => Err(Errno::EINVAL),
        }
    }
}
