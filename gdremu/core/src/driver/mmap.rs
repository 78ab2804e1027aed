//! Mapping pins into the CPU's address space, and what becomes of the mappings.
#![forbid(unsafe_code)]

use crate::abi::MappingType;
use crate::errno::Errno;
use crate::gpu::Provider;
use crate::session::Identity;

use super::pin::Mapping;
use super::{Caller, Driver, MappedPin, Shown};

/// User space ends here on all emulated platforms.
const ADDRESS_SPACE: usize = 1 << 47;

#[derive(Clone, Copy, Debug)]
pub struct MapRequest {
    /// Bytes, not yet rounded up to pages.
    pub len: usize,
    /// A handle, times the size of a page.
    pub offset: u64,
    /// MAP_SHARED or MAP_SHARED_VALIDATE.
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
    pub fn mmap(
        &mut self,
        gpu: &mut dyn Provider,
        file: Identity,
        caller: Caller,
        request: &MapRequest,
    ) -> Result<usize, Errno> {
        // The kernel's own checks come before the module's.
        if request.len == 0 || !request.offset.is_multiple_of(self.page_size) {
            return Err(Errno::EINVAL);
        }
        let page_size = usize::try_from(self.page_size).expect("pages fit into the address space");
        let len = request.len.checked_next_multiple_of(page_size).ok_or(Errno::ENOMEM)?;
        if len > ADDRESS_SPACE {
            return Err(Errno::ENOMEM);
        }
        let access = self.files.get(&file).ok_or(Errno::EBADF)?.access;
        if !access.read || (request.shared && request.write && !access.write) {
            return Err(Errno::EACCES);
        }

        let origin = self.next_mmap;
        let page_size = self.page_size;
        let (config, opened) = self.file(file, caller)?;
        let default_type = config.platform.default_mapping();
        let pin = opened.pins.find(request.offset / page_size, config.finds_the_oldest_pin());
        let pin = pin.ok_or(Errno::EINVAL)?;
        if pin.mapping.is_some() {
            if config.forgets_the_mapping_on_a_second_mmap() {
                pin.mapping = None;
            }
            return Err(Errno::EINVAL);
        }
        if !request.shared || pin.offset != 0 || len as u64 > pin.pinned_size {
            return Err(Errno::EINVAL);
        }
        let table = pin.table.ok_or(Errno::EINVAL)?;

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
        let gone = self.vmas.remove(addr, len);
        gone.into_iter().map(|(_, _, shown)| self.closed(shown)).collect()
    }

    /// A range was moved to another address by mremap(2). Its pins forget their mappings, which go on to show the
    /// memory.
    pub fn moved(&mut self, from: usize, len: usize, to: usize) {
        for (_, _, shown) in self.vmas.relocate(from, len, to) {
            self.closed(shown);
        }
    }

    pub fn maps(&self, addr: usize, len: usize) -> bool {
        self.vmas.touches(addr, len)
    }

    /// Returns whether a device or a dma-buf is mapped, zapped pages too.
    pub fn is_mapped(&self, file: Identity) -> bool {
        self.vmas.shown().any(|shown| shown.file == file)
    }

    /// The lowest mapped address and the end of the highest.
    pub fn mapped_bounds(&self) -> Option<(usize, usize)> {
        self.vmas.bounds()
    }

    /// gdrdrv's reaction to an unmapped address range, which marks the range's pin unmapped. Returns the open
    /// device.
    fn closed(&mut self, shown: Shown) -> Identity {
        let or_oldest = self.config.looks_up_late_munmaps();
        if let Some(mapped) = shown.pin
            && let Some(file) = self.files.get_mut(&shown.file)
            && let Some(pin) = file.pins.find(mapped.handle, or_oldest)
            && let Some(mapping) = pin.mapping
            && (mapping.origin == mapped.origin || or_oldest)
        {
            pin.mapping = None;
        }
        shown.file
    }
}
