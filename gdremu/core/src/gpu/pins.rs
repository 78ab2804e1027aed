//! Page tables, for memory whose physical addresses were given to another device.
#![forbid(unsafe_code)]

use super::memory::{Access, Error, Memory, PageTable, PageTableId, Pin};
use super::physical::{GPU_PAGE, Holder, Object};

impl Memory {
    /// Pins `[va, va + len)`, whole GPU pages. The physical memory lives until [`Memory::unpin`].
    ///
    /// A page can be pinned if at least part of it is in a live buffer or VMM mapping. Buffers are pinned
    /// rounded out to pages, and share pages with adjacent ones.
    ///
    /// # Errors
    /// [`Error::Invalid`]: not whole pages, a page without memory, more than one block of buffers or VMM
    /// mapping, or VMM memory that is not GPUDirect capable or not readable and writable for its own GPU.
    pub fn pin(&mut self, va: u64, len: u64, persistent: bool) -> Result<PageTable, Error> {
        // The GPU driver looks for a range in one allocation.
        let Some((start, mapping)) = self.mapping_at(va) else {
            return Err(Error::Invalid);
        };
        if len > start + mapping.len - va {
            return Err(Error::Invalid);
        }
        self.pin_pages(va, len, GPU_PAGE, GPU_PAGE, persistent, |object| object.rdma)
    }

    /// Takes hold of `[va, va + len)`, whole pages of `page` bytes, for a dma-buf. Otherwise as a
    /// persistent pin, except that only part of the whole range must be in a live buffer, and need not be
    /// GPUDirect capable. On an H200, NVIDIA's driver 580 exports all of a block of 2 MiB that holds one
    /// buffer of 4 KiB. It also exports all VMM and pool memory.
    pub fn export(&mut self, va: u64, len: u64, page: u64) -> Result<PageTable, Error> {
        self.pin_pages(va, len, page, len, true, |object| !object.imported)
    }

    /// Every `unit` of the range has a byte in a live buffer, and `can_be` holds for all its memory.
    fn pin_pages(
        &mut self,
        va: u64,
        len: u64,
        page: u64,
        unit: u64,
        persistent: bool,
        can_be: impl Fn(&Object) -> bool,
    ) -> Result<PageTable, Error> {
        let end = va.checked_add(len).ok_or(Error::Invalid)?;
        if len == 0 || !va.is_multiple_of(page) || !len.is_multiple_of(page) {
            return Err(Error::Invalid);
        }
        let runs = self.runs(va, len, |gpu, mapping| match &mapping.vmm {
            Some(of_gpus) => of_gpus.get(&gpu) == Some(&Access::ReadWrite),
            None => true,
        })?;
        for run in &runs {
            let object = self.physical.get(run.object).expect("mapped, so alive");
            if run.gpu != runs[0].gpu || !can_be(object) {
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
        let table = PageTable { id, va, len, runs };
        self.pins.insert(id, Pin { table: table.clone(), persistent, revoked: false });
        Ok(table)
    }

    /// Gives the pages back; unknown tables are ignored.
    pub fn unpin(&mut self, id: PageTableId) {
        let Some(pin) = self.pins.remove(&id) else {
            return;
        };
        for run in &pin.table.runs {
            self.drop_use(run.object);
        }
    }

    /// Bytes of a GPU that are pinned, each as often as it is.
    pub fn pinned_bytes(&self, gpu: usize) -> u64 {
        let tables = self.pins.values().map(|pin| &pin.table);
        tables.filter(|table| table.runs[0].gpu == gpu).map(|table| table.len).sum()
    }

    pub fn page_table(&self, id: PageTableId) -> Option<&PageTable> {
        self.pins.get(&id).map(|pin| &pin.table)
    }

    /// Returns whether each page that starts in `[start, end)` holds at least a byte of a live buffer or
    /// VMM mapping. A page starts at `start`.
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

    /// Marks and returns the non-persistent page tables that have lost a page in `[va, va + len)`,
    /// which has just been freed or unmapped.
    pub(super) fn revoke(&mut self, va: u64, len: u64) -> Vec<PageTableId> {
        let end = va + len;
        let lost: Vec<_> = self
            .pins
            .values()
            .filter(|pin| !pin.persistent && !pin.revoked)
            .map(|pin| &pin.table)
            .filter(|table| {
                let first = table.va.max(va / GPU_PAGE * GPU_PAGE);
                let last = (table.va + table.len).min(end);
                !self.every_page_holds_memory(first, last, GPU_PAGE)
            })
            .map(|table| table.id)
            .collect();
        for id in &lost {
            self.pins.get_mut(id).expect("just seen").revoked = true;
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::{BASE, SIZE, memory};
    use super::super::physical::BLOCK;
    use super::*;

    #[test]
    fn buffers_that_cannot_be_pinned_share_no_block_with_others() {
        let mut memory = memory();
        let a = memory.alloc(0, 1, true).unwrap();
        let b = memory.alloc(0, 1, false).unwrap();
        assert_eq!((a, b), (BASE, BASE + BLOCK));
        assert!(memory.pin(a, GPU_PAGE, true).is_ok());
        assert_eq!(memory.pin(b, GPU_PAGE, true), Err(Error::Invalid));
    }

    #[test]
    fn a_shared_block_whose_buffers_are_gone_lives_until_the_unpin() {
        let mut memory = memory();
        let a = memory.alloc(0, 512, true).unwrap();
        let table = memory.pin(BASE, GPU_PAGE, true).unwrap();
        memory.free(a).unwrap();
        assert_eq!(memory.free_bytes(0), SIZE - BLOCK);
        assert_eq!(memory.pin(BASE, GPU_PAGE, true), Err(Error::Invalid));
        memory.unpin(table.id);
        assert_eq!(memory.free_bytes(0), SIZE);
    }

    #[test]
    fn freeing_revokes_ordinary_pins_that_lose_a_page_once() {
        let mut memory = memory();
        let a = memory.alloc(0, 4 * GPU_PAGE, true).unwrap();
        let b = memory.alloc(0, 4 * GPU_PAGE, true).unwrap();
        let pin_a = memory.pin(a, 4 * GPU_PAGE, false).unwrap().id;
        let pin_b = memory.pin(b, 4 * GPU_PAGE, false).unwrap().id;
        let both = memory.pin(a + 3 * GPU_PAGE, 2 * GPU_PAGE, false).unwrap().id;
        assert_eq!(memory.free(a), Ok(vec![pin_a, both]));
        assert_eq!(memory.free(b), Ok(vec![pin_b]));
        assert_eq!(memory.free_bytes(0), SIZE - BLOCK, "until the caller unpins them");
        for id in [pin_a, pin_b, both] {
            memory.unpin(id);
        }
        assert_eq!(memory.free_bytes(0), SIZE);
    }

    #[test]
    fn a_page_shared_with_a_live_buffer_is_not_revoked() {
        let mut memory = memory();
        let a = memory.alloc(0, 512, true).unwrap();
        let b = memory.alloc(0, 512, true).unwrap();
        let table = memory.pin(BASE, GPU_PAGE, false).unwrap().id;
        assert_eq!(memory.free(a), Ok(vec![]));
        assert_eq!(memory.free(b), Ok(vec![table]));
    }
}
