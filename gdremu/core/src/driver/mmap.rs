//! Mapping pins into the CPU's address space, and what becomes of the mappings.
#![forbid(unsafe_code)]

use crate::abi::MappingType;
use crate::errno::Errno;
use crate::gpu::{Provider, page_size};
use crate::session::Identity;

use super::Driver;
use super::pin::Mapping;
use super::vmas::{MappedPin, Shown};

/// User space ends here on all emulated platforms.
const ADDRESS_SPACE: usize = 1 << 47;

#[derive(Clone, Copy, Debug)]
pub struct MapRequest {
    pub len: usize,
    /// A handle, times the size of a page.
    pub offset: u64,
    pub shared: bool,
    pub write: bool,
    /// The address, with MAP_FIXED.
    pub fixed: Option<usize>,
}

impl Driver {
    /// Maps a pin and returns the address, which the GPU's memory chooses.
    ///
    /// # Errors
    /// `EINVAL` for no length, no such handle, or a pin that is mapped, shorter, not aligned to a
    /// GPU page, or whose memory was freed. `ENOMEM`: longer than the address space. `EACCES`:
    /// not the owner, or not opened for this access.
    pub fn mmap(&mut self, gpu: &mut dyn Provider, file: Identity, request: &MapRequest) -> Result<usize, Errno> {
        // The kernel's own checks come before the module's.
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
            // Memory that is forced over PCIe is not behind the coherent link.
            MappingType::None if pin.force_pcie && default_type == MappingType::Caching => MappingType::Wc,
            MappingType::None => default_type,
            requested => requested,
        };
        pin.mapping = Some(Mapping { mapping_type, addr, len, origin });
        // The handle of the pin, which a wrong handle may have found, not the one asked for.
        let pin = Some(MappedPin { handle: pin.handle, origin });
        self.vmas.insert(addr, len, Shown { file, pin });
        self.next_mmap += 1;
        Ok(addr)
    }

    /// A dma-buf was mapped. The addresses of dma-bufs end in the same calls as those of pins.
    pub fn mapped_dmabuf(&mut self, file: Identity, addr: usize, len: usize) {
        self.vmas.insert(addr, len, Shown { file, pin: None });
    }

    /// A range of addresses was unmapped, whatever lay there. Any part of a mapping that goes makes
    /// its pin forget the whole of it. Returns the open devices and dma-bufs that lost something.
    pub fn unmapped(&mut self, addr: usize, len: usize) -> Vec<Identity> {
        let mut touched = Vec::new();
        for (_, _, shown) in self.vmas.remove(addr, len) {
            self.closed(shown);
            touched.push(shown.file);
        }
        touched
    }

    /// A range was moved to another address by mremap(2). Its pins forget their mappings, which go on to show the
    /// memory.
    pub fn moved(&mut self, from: usize, len: usize, to: usize) {
        for (addr, len, shown) in self.vmas.remove(from, len) {
            self.vmas.insert(to + (addr - from), len, shown);
            self.closed(shown);
        }
    }

    /// Reacts to an unmapped address range as gdrdrv does, which marks the range's pin as unmapped.
    fn closed(&mut self, shown: Shown) {
        // A defect: a munmap after the UNPIN looks its pin up by handle, and so marks another one unmapped.
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
