//! Maps pins into the CPU's address space, and records what munmap and mremap do to the mappings.
#![forbid(unsafe_code)]

use crate::abi::MappingType;
use crate::errno::Errno;
use crate::gpu::{Provider, page_size};
use crate::session::Identity;

use super::Driver;
use super::pin::Mapping;
use super::vmas::{MappedPin, Shown};

/// The end of user space, on all emulated platforms.
const ADDRESS_SPACE: usize = 1 << 47;

#[derive(Clone, Copy, Debug)]
pub struct MapRequest {
    pub len: usize,
    /// The offset that the program passed to mmap. gdrdrv expects the pin's handle times the size of a CPU page.
    pub offset: u64,
    pub shared: bool,
    pub write: bool,
    /// The address that the program passed with MAP_FIXED.
    pub fixed: Option<usize>,
}

impl Driver {
    /// Maps a pin and returns the address of the mapping.
    ///
    /// # Errors
    /// `EINVAL` if the length is 0, the mapping is private, the handle does not exist, or the pin is mapped, shorter
    /// than the length, not aligned to a GPU page, or has lost its memory. `ENOMEM` if the length exceeds the address
    /// space. `EACCES` if the caller does not own the open device, or the device is not open for this access.
    pub fn mmap(&mut self, gpu: &mut dyn Provider, file: Identity, request: &MapRequest) -> Result<usize, Errno> {
        // Linux checks the following before it calls gdrdrv's mmap.
        let page = page_size();
        if request.len == 0 || !request.offset.is_multiple_of(page as u64) {
            return Err(Errno::EINVAL);
        }
        if request.len > ADDRESS_SPACE {
            return Err(Errno::ENOMEM);
        }
        let len = request.len.next_multiple_of(page);
        let access = self.file(file)?.access;
        if !access.read || (request.shared && request.write && !access.write) {
            return Err(Errno::EACCES);
        }

        let origin = self.next_mmap;
        let config = self.config;
        let default_type = config.platform.default_mapping();
        let pin = self.pins_of_caller(file)?.find(request.offset / page as u64)?;
        if pin.mapping.is_some() {
            if config.module_defects {
                pin.mapping = None;
            }
            return Err(Errno::EINVAL);
        }
        let table = pin.table.ok_or(Errno::EINVAL)?;
        if !request.shared || pin.offset != 0 || len as u64 > pin.pinned_size {
            return Err(Errno::EINVAL);
        }

        let addr = gpu.map(table, 0, len, request.fixed)?;
        let mapping_type = match pin.requested {
            // With FORCE_PCIE, the CPU reaches a pin over PCIe, not the coherent link, and cannot cache the memory.
            MappingType::None if pin.force_pcie && default_type == MappingType::Caching => MappingType::Wc,
            MappingType::None => default_type,
            requested => requested,
        };
        pin.mapping = Some(Mapping { mapping_type, addr, len, origin });
        // This records the handle of the pin, not the one that the program passed. With `module_defects`, the two can
        // differ, because a handle that does not exist finds the oldest pin.
        let pin = Some(MappedPin { handle: pin.handle, origin });
        self.vmas.insert(addr, len, Shown { file, pin });
        self.next_mmap += 1;
        Ok(addr)
    }

    /// Records that a dma-buf was mapped. The functions `unmapped` and `moved` treat its mapping like that of a pin.
    pub fn mapped_dmabuf(&mut self, file: Identity, addr: usize, len: usize) {
        self.vmas.insert(addr, len, Shown { file, pin: None });
    }

    /// Records that a range of addresses was unmapped. A pin that loses any part of its mapping counts as unmapped.
    /// Returns the open devices and the dma-bufs that were mapped in the range.
    pub fn unmapped(&mut self, addr: usize, len: usize) -> Vec<Identity> {
        let mut touched = Vec::new();
        for (_, _, shown) in self.vmas.remove(addr, len) {
            self.closed(shown);
            touched.push(shown.file);
        }
        touched
    }

    /// Records that mremap(2) moved a range. Its pins count as unmapped, although their memory is now mapped at `to`.
    pub fn moved(&mut self, from: usize, len: usize, to: usize) {
        for (addr, len, shown) in self.vmas.remove(from, len) {
            self.vmas.insert(to + (addr - from), len, shown);
            self.closed(shown);
        }
    }

    /// Marks a pin as unmapped after a part of its mapping, or all of it, has ended, as gdrdrv does.
    fn closed(&mut self, shown: Shown) {
        // This emulates a defect of gdrdrv 2.4 and later. When a mapping ends, gdrdrv looks up its pin by the
        // handle. If the pin has ended before, gdrdrv finds the oldest pin instead, and marks that one as unmapped.
        let of_any_mapping = self.config.module_defects && self.config.since(4);
        if let Some(mapped) = shown.pin
            && let Ok(file) = self.file(shown.file)
            && let Ok(pin) = file.pins.find(mapped.handle)
            && let Some(mapping) = pin.mapping
            && (mapping.origin == mapped.origin || of_any_mapping)
        {
            pin.mapping = None;
        }
    }
}
