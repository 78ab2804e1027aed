//! Page tables. Each lists the physical memory behind a pinned or exported range, and keeps this memory allocated.
#![forbid(unsafe_code)]

use super::address_space::{Access, Error, Memory, PageTable, PageTableId};
use super::physical::{GPU_PAGE, Holder, Object, end_of};

impl Memory {
    /// Pins `[va, va + len)`, whole GPU pages. The physical memory stays allocated until [`Memory::unpin`].
    ///
    /// A page can be pinned if at least part of it is in a live buffer or VMM (virtual memory management) mapping. So a
    /// pin can include adjacent buffers, which share the first or last page of the requested buffer.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the range is not whole pages, has a page without memory, or spans two allocations (blocks
    /// of buffers or VMM mappings), or if VMM memory is not GPUDirect capable or its own GPU may not read and write it.
    pub fn pin(&mut self, va: u64, len: u64, persistent: bool) -> Result<PageTable, Error> {
        // The GPU driver refuses a range that is not inside one allocation.
        let mapping = self.mapping_at(va)?;
        if len > mapping.start + mapping.len - va {
            return Err(Error::Invalid);
        }
        self.pin_pages(va, len, GPU_PAGE, GPU_PAGE, persistent, |object| object.rdma)
    }

    /// Makes a persistent pin of `[va, va + len)`, whole pages of `page` bytes, for a dma-buf. One byte in a live
    /// buffer or VMM mapping is enough, and GPUDirect capability is not needed: on an H200, NVIDIA's driver 580 exports
    /// a whole 2 MiB block that holds one 4 KiB buffer, and all VMM and pool memory.
    pub fn export(&mut self, va: u64, len: u64, page: u64) -> Result<PageTable, Error> {
        self.pin_pages(va, len, page, len, true, |object| !object.imported)
    }

    /// Pins a range. Each part of `unit` bytes must have a byte in a live buffer or a mapping of cuMemMap, and `can_be`
    /// must return true for each physical object behind the range.
    fn pin_pages(
        &mut self,
        va: u64,
        len: u64,
        page: u64,
        unit: u64,
        persistent: bool,
        can_be: impl Fn(&Object) -> bool,
    ) -> Result<PageTable, Error> {
        let end = end_of(va, len)?;
        if len == 0 || !va.is_multiple_of(page) || !len.is_multiple_of(page) {
            return Err(Error::Invalid);
        }
        let runs = self.runs(va, len, |gpu, mapping| match &mapping.vmm {
            Some(of_gpus) => of_gpus.get(&gpu) == Some(&Access::ReadWrite),
            None => true,
        })?;
        for run in &runs {
            if run.gpu != runs[0].gpu || !can_be(self.physical.live(run.object)) {
                return Err(Error::Invalid);
            }
        }
        if !self.every_page_holds_memory(va, end, unit) {
            return Err(Error::Invalid);
        }
        for run in &runs {
            self.physical.hold(run.object, Holder::Use);
        }
        let id = PageTableId(self.next_id());
        let table = PageTable { id, va, len, runs, persistent };
        self.pins.insert(id, table.clone());
        Ok(table)
    }

    /// Ends the pin of a page table. Unknown ids are ignored.
    pub fn unpin(&mut self, id: PageTableId) {
        if let Some(table) = self.pins.remove(&id) {
            for run in table.runs {
                self.drop_reference(run.object, Holder::Use);
            }
        }
    }

    /// Returns the pinned and exported bytes of a GPU. Bytes that are pinned or exported twice count twice.
    pub fn pinned_bytes(&self, gpu: usize) -> u64 {
        let of_gpu = self.pins.values().filter(|table| table.runs[0].gpu == gpu);
        of_gpu.map(|table| table.len).sum()
    }

    /// Returns whether each page that starts in `[start, end)` holds at least a byte of a live buffer or VMM mapping.
    /// `start` is the start of a page.
    fn every_page_holds_memory(&self, start: u64, end: u64, page: u64) -> bool {
        let mut at = start;
        while at < end {
            let Some(live_until) = self.memory_end(at, at + page) else {
                return false;
            };
            at = (at + page).max(live_until.next_multiple_of(page));
        }
        true
    }

    /// Returns the non-persistent page tables that lose a page because `[va, va + len)` has been freed or unmapped.
    pub(super) fn revoked(&self, va: u64, len: u64) -> Vec<PageTableId> {
        let mut lost = Vec::new();
        for table in self.pins.values() {
            let first = table.va.max(va / GPU_PAGE * GPU_PAGE);
            let last = (table.va + table.len).min(va + len);
            if !table.persistent && !self.every_page_holds_memory(first, last, GPU_PAGE) {
                lost.push(table.id);
            }
        }
        lost
    }
}
