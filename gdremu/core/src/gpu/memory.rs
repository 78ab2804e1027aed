//! The GPUs' memory as this process sees it, with one address space over all of them, as with CUDA's
//! unified addressing.
//!
//! Pure bookkeeping, which reserves, maps and touches no memory. [`super::host`] does that.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::buffers::{Buffer, Buffers, Freed};
use super::physical::{BLOCK, Holder, Object, ObjectId, Physical};
use super::ranges::Ranges;

pub use super::physical::Run;
use super::step::Step;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No physical memory is left.
    NoMemory,
    /// No free address range of this many bytes. Give the memory another window and repeat the call.
    NoAddresses(u64),
    /// The address, size or handle is not what the call needs.
    Invalid,
}

/// Names a page table; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageTableId(pub u64);

/// Pinned pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageTable {
    pub id: PageTableId,
    /// Device address of the first page.
    pub va: u64,
    /// Bytes, a multiple of [`GPU_PAGE`](super::physical::GPU_PAGE).
    pub len: u64,
    /// The physical memory, in address order.
    pub runs: Vec<Run>,
}

/// The buffer or mapping of a device address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Start of the buffer or VMM mapping.
    pub base: u64,
    /// Its bytes, as the program asked for them.
    pub len: u64,
    pub gpu: usize,
    /// Different for every buffer and mapping of this process, also after reuse of the address.
    pub id: u64,
    pub object: ObjectId,
    /// True if it came from cuMemCreate and cuMemMap.
    pub vmm: bool,
    /// True if its pages can be pinned.
    pub rdma: bool,
}

/// A GPU's access to a VMM mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing, the state after cuMemMap.
    #[default]
    None,
    Read,
    ReadWrite,
}

/// Part of the address space with memory behind it.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub(super) id: u64,
    pub(super) len: u64,
    pub(super) object: ObjectId,
    /// The access of each GPU, for a VMM mapping; `None` for the memory under buffers.
    pub(super) vmm: Option<BTreeMap<usize, Access>>,
}

/// A pin and whether the program's free has been reported for it.
#[derive(Clone, Debug)]
pub(super) struct Pin {
    pub(super) table: PageTable,
    pub(super) persistent: bool,
    pub(super) revoked: bool,
}

/// Everything about the memory of this process's GPUs.
#[derive(Clone, Debug)]
pub struct Memory {
    pub(super) physical: Physical,
    /// Addresses that nothing uses.
    pub(super) addresses: Ranges,
    /// All memory in the address space, by start.
    pub(super) mappings: BTreeMap<u64, Mapping>,
    /// By GPU, and whether they can be pinned.
    buffers: Buffers<(usize, bool)>,
    /// cuMemAddressReserve'd ranges, as length by start.
    pub(super) reservations: BTreeMap<u64, u64>,
    pub(super) pins: BTreeMap<PageTableId, Pin>,
    pub(super) steps: Vec<Step>,
    ids: u64,
}

impl Memory {
    /// `gpus` GPUs with `size` bytes each, and no address space yet.
    pub fn new(gpus: usize, size: u64) -> Self {
        Memory {
            physical: Physical::new(gpus, size),
            addresses: Ranges::default(),
            mappings: BTreeMap::new(),
            buffers: Buffers::default(),
            reservations: BTreeMap::new(),
            pins: BTreeMap::new(),
            steps: Vec::new(),
            ids: 0,
        }
    }

    /// Adds address space; both numbers are multiples of [`BLOCK`].
    pub fn add_window(&mut self, start: u64, len: u64) {
        self.addresses.give(start, len);
    }

    pub fn free_bytes(&self, gpu: usize) -> u64 {
        self.physical.free_bytes(gpu)
    }

    /// The steps since the last call, in order.
    pub(super) fn take_steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }

    /// A live physical object, by whatever keeps it alive.
    pub fn physical_object(&self, id: ObjectId) -> Option<&Object> {
        self.physical.get(id)
    }

    /// Allocates a buffer of `len` bytes, to be pinned or not, and returns its address, a multiple
    /// of 512.
    pub fn alloc(&mut self, gpu: usize, len: u64, rdma: bool) -> Result<u64, Error> {
        if len == 0 {
            return Err(Error::Invalid);
        }
        let kind = (gpu, rdma);
        let id = self.next_id();
        if let Some(va) = self.buffers.take(kind, len, id) {
            return Ok(va);
        }
        let (start, object) = self.alloc_blocks(gpu, len, rdma)?;
        let blocks = self.physical.get(object).expect("just made").len;
        self.buffers.add_block(kind, start, blocks, Buffer { start, len, id });
        Ok(start)
    }

    /// Takes blocks for memory of another process, in which a buffer of `len` bytes starts at `offset`.
    /// Returns the buffer's address; [`Memory::free`] gives it back. It cannot be pinned.
    pub fn import(&mut self, gpu: usize, blocks: u64, offset: u64, len: u64) -> Result<(u64, ObjectId), Error> {
        let end = offset.checked_add(len).ok_or(Error::Invalid)?;
        if len == 0 || end > blocks || !blocks.is_multiple_of(BLOCK) {
            return Err(Error::Invalid);
        }
        let (base, object) = self.alloc_blocks(gpu, blocks, false)?;
        self.physical.set_imported(object);
        let buffer = Buffer { start: base + offset, len, id: self.next_id() };
        self.buffers.add_block((gpu, false), base, blocks, buffer);
        Ok((buffer.start, object))
    }

    fn alloc_blocks(&mut self, gpu: usize, len: u64, rdma: bool) -> Result<(u64, ObjectId), Error> {
        let len = len.checked_next_multiple_of(BLOCK).ok_or(Error::NoMemory)?;
        if len > self.physical.free_bytes(gpu) {
            return Err(Error::NoMemory); // Before asking for addresses that would stay unused.
        }
        let va = self.addresses.take(len, BLOCK).ok_or(Error::NoAddresses(len))?;
        let Some(object) = self.physical.create(gpu, len, rdma, false, Holder::Use) else {
            self.addresses.give(va, len);
            return Err(Error::NoMemory);
        };
        let id = self.next_id();
        self.mappings.insert(va, Mapping { id, len, object, vmm: None });
        self.steps.push(Step::Created { object, len, rdma });
        self.steps.push(Step::Mapped { va, len, object });
        Ok((va, object))
    }

    /// Frees a buffer. Returns the non-persistent page tables that lost memory by it. The caller ends
    /// their mappings, then unpins them.
    pub fn free(&mut self, va: u64) -> Result<Vec<PageTableId>, Error> {
        let Buffer { len, .. } = self.buffers.find(va).ok_or(Error::Invalid)?;
        let pinned = self.is_pinned(va, len);
        let freed = self.buffers.free(va, pinned).ok_or(Error::Invalid)?;
        let revoked = self.revoke(va, len);
        match freed {
            Freed::Block(base, len) => {
                let mapping = self.mappings.remove(&base).expect("a block is mapped");
                self.addresses.give(base, len);
                self.steps.push(Step::Unmapped { va: base, len });
                self.drop_use(mapping.object);
            }
            Freed::Part(_, 0) => {}
            Freed::Part(va, len) => self.steps.push(Step::Emptied { va, len }),
        }
        Ok(revoked)
    }

    /// Returns whether any of the physical memory at a buffer's addresses is pinned.
    fn is_pinned(&self, va: u64, len: u64) -> bool {
        for part in self.runs(va, len, |_, _| true).expect("blocks are mapped") {
            let part_end = part.offset + part.len;
            for run in self.pins.values().flat_map(|pin| &pin.table.runs) {
                if run.object == part.object && run.offset < part_end && part.offset < run.offset + run.len {
                    return true;
                }
            }
        }
        false
    }

    /// Takes a reference of a mapping or a page table away.
    pub(super) fn drop_use(&mut self, object: ObjectId) {
        self.steps.extend(self.physical.release(object, Holder::Use).map(Step::Removed));
    }

    /// The live buffer or VMM mapping at a device address.
    pub fn place(&self, va: u64) -> Option<Place> {
        let (start, mapping) = self.mapping_at(va)?;
        let object = self.physical.get(mapping.object).expect("mapped, so alive");
        let vmm = mapping.vmm.is_some();
        let (base, len, id) = if vmm {
            (start, mapping.len, mapping.id)
        } else {
            let Buffer { start, len, id } = self.buffers.find(va)?;
            (start, len, id)
        };
        Some(Place { base, len, gpu: object.gpu, id, object: mapping.object, vmm, rdma: object.rdma })
    }

    /// The mapping that an address lies in, and its start.
    pub(super) fn mapping_at(&self, va: u64) -> Option<(u64, &Mapping)> {
        let (&start, mapping) = self.mappings.range(..=va).next_back()?;
        (va - start < mapping.len).then_some((start, mapping))
    }

    /// The physical memory behind `[va, va + len)` for a copy or fill. All of it is in one buffer, or in
    /// VMM mappings side by side that some GPU may access as needed.
    pub fn translate(&self, va: u64, len: u64, need: Access) -> Result<Vec<Run>, Error> {
        if len == 0 {
            return Ok(Vec::new());
        }
        let memory = self.place(va).ok_or(Error::Invalid)?;
        if !memory.vmm && memory.len - (va - memory.base) < len {
            return Err(Error::Invalid);
        }
        self.runs(va, len, |_, mapping| match &mapping.vmm {
            Some(of_gpus) => of_gpus.values().any(|&access| access >= need),
            None => true,
        })
    }

    /// The physical memory behind `[va, va + len)` if it is mapped without a hole and every mapping
    /// is `allowed` for the GPU whose memory it maps.
    pub(super) fn runs(&self, va: u64, len: u64, allowed: impl Fn(usize, &Mapping) -> bool) -> Result<Vec<Run>, Error> {
        let end = va.checked_add(len).ok_or(Error::Invalid)?;
        let mut runs = Vec::new();
        let mut at = va;
        while at < end {
            let (start, mapping) = self.mapping_at(at).ok_or(Error::Invalid)?;
            let inside = at - start;
            let object = self.physical.get(mapping.object).expect("mapped, so alive");
            if !allowed(object.gpu, mapping) {
                return Err(Error::Invalid);
            }
            let len = (mapping.len - inside).min(end - at);
            let offset = object.start + inside;
            runs.push(Run { gpu: object.gpu, object: mapping.object, offset, len });
            at += len;
        }
        Ok(runs)
    }

    /// Where the last live buffer or VMM mapping ends that has a byte in `[start, end)`.
    pub(super) fn memory_end(&self, start: u64, end: u64) -> Option<u64> {
        let buffer_end = self.buffers.live_until(start, end);
        match self.mappings.range(..end).next_back() {
            Some((va, Mapping { vmm: Some(_), len, .. })) if va + len > start => buffer_end.max(Some(va + len)),
            _ => buffer_end,
        }
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const BASE: u64 = 0x7f00_0000_0000;
    pub(in super::super) const SIZE: u64 = 64 << 20;

    /// That of two GPUs of this size, with device addresses from [`BASE`] on.
    pub(in super::super) fn memory() -> Memory {
        let mut memory = Memory::new(2, SIZE);
        memory.add_window(BASE, 1 << 30);
        memory
    }

    #[test]
    fn asks_for_addresses_when_they_run_out() {
        let mut memory = Memory::new(1, SIZE);
        assert_eq!(memory.alloc(0, 3 << 20, true), Err(Error::NoAddresses(4 << 20)));
        memory.add_window(BASE, 4 << 20);
        assert_eq!(memory.alloc(0, 3 << 20, true), Ok(BASE));
        assert_eq!(memory.alloc(0, 1, true), Err(Error::NoAddresses(BLOCK)));
    }
}
