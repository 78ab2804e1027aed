//! The allocation metadata of the GPUs' memory in this process. All GPUs share one address space, as with CUDA's
//! unified addressing. VMM is CUDA's virtual memory management (cuMemCreate, cuMemMap).
//!
//! This module only keeps records. [`super::files`] reserves, maps and accesses the memory.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::buffers::{Buffer, Buffers, Freed};
use super::physical::{BLOCK, Holder, Object, ObjectId, Physical, end_of};
use super::ranges::Ranges;

pub use super::physical::{Error, Run};

/// The id of a page table, which lists the memory of a pinned or exported range. No other page table ever has this id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageTableId(pub u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageTable {
    pub id: PageTableId,
    pub va: u64,
    /// The length in bytes, a multiple of [`GPU_PAGE`](super::physical::GPU_PAGE).
    pub len: u64,
    /// The physical memory, in the order of its device addresses.
    pub runs: Vec<Run>,
    pub(super) persistent: bool,
}

/// The buffer of cuMemAlloc, or the mapping of cuMemMap, that is at a device address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub base: u64,
    /// The number of bytes that the program asked for.
    pub len: u64,
    pub gpu: usize,
    /// The id of the buffer or mapping. No other buffer or mapping in any process has it, even at the same address.
    pub id: u64,
    pub object: ObjectId,
    /// True if the memory came from cuMemCreate and cuMemMap.
    pub vmm: bool,
    pub rdma: bool,
}

/// The access that a GPU has to memory that cuMemMap has mapped, with the numbers of CUmemAccess_flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// No access, which is the state after cuMemMap.
    #[default]
    None = 0,
    Read = 1,
    ReadWrite = 3,
}

pub(super) type Accesses = BTreeMap<usize, Access>;

/// A range of device addresses that has memory behind it.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) id: u64,
    pub(super) object: ObjectId,
    /// The access that each GPU has, for a mapping of cuMemMap; `None` for a block of memory that holds buffers.
    pub(super) vmm: Option<Accesses>,
}

/// A change that must be made to the GPUs' memory after a change of [`Memory`], which is only metadata. `Memory` lists
/// these steps, and [`super::files`] carries them out. Addresses and lengths are multiples of the GPU page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Created {
        object: ObjectId,
        len: u64,
        rdma: bool,
    },
    Mapped {
        va: u64,
        len: u64,
        object: ObjectId,
    },
    Unmapped {
        va: u64,
        len: u64,
    },
    /// Pages in which no buffer is left after a free. They stay mapped, because other buffers are in the same block.
    Emptied {
        va: u64,
        len: u64,
    },
    Removed(Run),
}

#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub(super) physical: Physical,
    pub(super) addresses: Ranges,
    /// All mappings of memory in the address space, by their starts.
    pub(super) mappings: BTreeMap<u64, Mapping>,
    /// The buffers, each with its GPU and whether it can be pinned. Only buffers that agree in both can share a block
    /// of memory.
    buffers: Buffers<(usize, bool)>,
    /// The lengths of the ranges that cuMemAddressReserve reserved, by their starts.
    pub(super) reservations: BTreeMap<u64, u64>,
    pub(super) pins: BTreeMap<PageTableId, PageTable>,
    pub(super) steps: Vec<Step>,
    ids: u64,
}

impl Memory {
    /// Makes the memory of `gpus` GPUs with `size` bytes each. It has no device addresses until [`Memory::add_window`]
    /// adds some.
    pub fn new(gpus: usize, size: u64) -> Self {
        Memory { physical: Physical::new(gpus, size), ..Memory::default() }
    }

    /// Makes the ids of this process's buffers and mappings different from those in other processes.
    pub(super) fn set_process(&mut self, process: u32) {
        self.ids = u64::from(process) << 32;
    }

    /// Adds a range of free device addresses. Both numbers are multiples of [`BLOCK`].
    pub fn add_window(&mut self, start: u64, len: u64) {
        self.addresses.give(start, len);
    }

    pub fn free_bytes(&self, gpu: usize) -> u64 {
        self.physical.free_bytes(gpu)
    }

    /// Allocates a buffer, which can be pinned if `rdma` is true. Returns its address, a multiple of 512.
    pub fn alloc(&mut self, gpu: usize, len: u64, rdma: bool) -> Result<u64, Error> {
        if len == 0 {
            return Err(Error::Invalid);
        }
        let kind = (gpu, rdma);
        let id = self.next_id();
        if let Some(va) = self.buffers.take(kind, len, id) {
            return Ok(va);
        }
        let Mapping { start, len: blocks, .. } = self.alloc_blocks(gpu, len, rdma)?;
        self.buffers.add_block(kind, blocks, Buffer { start, len, id });
        Ok(start)
    }

    /// Reserves a range of device addresses for memory of another process. The range has `blocks` bytes, a multiple of
    /// `BLOCK`. That process's buffer `id` of `len` bytes starts at `offset` in the range. Returns the buffer's address
    /// in this process. The buffer cannot be pinned here. [`Memory::free`] removes it from this process.
    pub fn import(&mut self, gpu: usize, blocks: u64, offset: u64, len: u64, id: u64) -> Result<u64, Error> {
        if len == 0 || end_of(offset, len)? > blocks || !blocks.is_multiple_of(BLOCK) {
            return Err(Error::Invalid);
        }
        let block = self.alloc_blocks(gpu, blocks, false)?;
        self.physical.live_mut(block.object).imported = true;
        let buffer = Buffer { start: block.start + offset, len, id };
        self.buffers.add_imported((gpu, false), block.start, blocks, buffer);
        Ok(buffer.start)
    }

    fn alloc_blocks(&mut self, gpu: usize, len: u64, rdma: bool) -> Result<Mapping, Error> {
        let len = len.checked_next_multiple_of(BLOCK).ok_or(Error::NoMemory)?;
        let object = self.physical.create(gpu, len, rdma, Holder::Use)?;
        let Some(va) = self.addresses.take(len, BLOCK) else {
            self.physical.release(object, Holder::Use);
            return Err(Error::NoAddresses(len));
        };
        self.steps.push(Step::Created { object, len, rdma });
        Ok(self.add_mapping(va, len, object, None))
    }

    pub(super) fn add_mapping(&mut self, start: u64, len: u64, object: ObjectId, vmm: Option<Accesses>) -> Mapping {
        let mapping = Mapping { start, len, id: self.next_id(), object, vmm };
        self.mappings.insert(start, mapping.clone());
        self.steps.push(Step::Mapped { va: start, len, object });
        mapping
    }

    /// Frees a buffer. Returns the page tables of the non-persistent pins that have lost memory. The caller must remove
    /// this memory from the CPU's mappings, then unpin the page tables.
    pub fn free(&mut self, va: u64) -> Result<Vec<PageTableId>, Error> {
        let buffer = self.buffers.starting_at(va).ok_or(Error::Invalid)?;
        let pinned = self.is_pinned(va, buffer.len);
        let Freed { start, len, is_block } = self.buffers.free(buffer, pinned);
        let revoked = self.revoked(va, buffer.len);
        if is_block {
            let mapping = self.mappings.remove(&start).expect("a block is mapped");
            self.addresses.give(start, len);
            self.steps.push(Step::Unmapped { va: start, len });
            self.drop_reference(mapping.object, Holder::Use);
        } else if len > 0 {
            self.steps.push(Step::Emptied { va: start, len });
        }
        Ok(revoked)
    }

    fn is_pinned(&self, va: u64, len: u64) -> bool {
        for part in self.runs(va, len, |_, _| true).expect("blocks are mapped") {
            let part_end = part.offset + part.len;
            for run in self.pins.values().flat_map(|table| &table.runs) {
                if run.object == part.object && run.offset < part_end && part.offset < run.offset + run.len {
                    return true;
                }
            }
        }
        false
    }

    pub(super) fn drop_reference(&mut self, object: ObjectId, holder: Holder) {
        self.steps.extend(self.physical.release(object, holder).map(Step::Removed));
    }

    pub fn place(&self, va: u64) -> Option<Place> {
        let mapping = self.mapping_at(va).ok()?;
        let Object { gpu, rdma, .. } = *self.physical.live(mapping.object);
        let Mapping { start: base, len, id, object, .. } = *mapping;
        let place = Place { base, len, gpu, id, object, vmm: mapping.vmm.is_some(), rdma };
        if place.vmm {
            return Some(place);
        }
        let Buffer { start: base, len, id } = self.buffers.find(va)?;
        Some(Place { base, len, id, ..place })
    }

    pub(super) fn mapping_at(&self, va: u64) -> Result<&Mapping, Error> {
        match self.mappings.range(..=va).next_back() {
            Some((start, mapping)) if va - start < mapping.len => Ok(mapping),
            _ => Err(Error::Invalid),
        }
    }

    /// Returns the physical memory behind `[va, va + len)` for a copy or fill. All of it must be in one buffer, or in
    /// adjacent mappings of cuMemMap. Each mapping must give at least one GPU the access `need` or more.
    pub fn translate(&self, va: u64, len: u64, need: Access) -> Result<Vec<Run>, Error> {
        if len == 0 {
            return Ok(Vec::new());
        }
        match self.place(va) {
            Some(memory) if memory.vmm || len <= memory.len - (va - memory.base) => {}
            _ => return Err(Error::Invalid),
        }
        self.runs(va, len, |_, mapping| match &mapping.vmm {
            Some(of_gpus) => of_gpus.values().any(|&access| access >= need),
            None => true,
        })
    }

    /// Returns the physical memory of `[va, va + len)`. Fails if part of the range is not mapped. Calls `allowed` with
    /// each mapping in the range and the GPU of its memory, and also fails if `allowed` returns false.
    pub(super) fn runs(&self, va: u64, len: u64, allowed: impl Fn(usize, &Mapping) -> bool) -> Result<Vec<Run>, Error> {
        let end = end_of(va, len)?;
        let mut runs = Vec::new();
        let mut at = va;
        while at < end {
            let mapping = self.mapping_at(at)?;
            let inside = at - mapping.start;
            let object = self.physical.live(mapping.object);
            if !allowed(object.gpu, mapping) {
                return Err(Error::Invalid);
            }
            let len = (mapping.len - inside).min(end - at);
            runs.push(Run { gpu: object.gpu, object: mapping.object, offset: object.start + inside, len });
            at += len;
        }
        Ok(runs)
    }

    /// Returns the end of the last live buffer, or mapping of cuMemMap, that has a byte in `[start, end)`.
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
mod tests {
    use super::*;

    #[test]
    fn imported_memory_holds_no_other_buffers() {
        let mut memory = Memory::new(1, 4 * BLOCK);
        memory.add_window(BLOCK, 4 * BLOCK);
        let imported = memory.import(0, BLOCK, 0, 1000, 7).unwrap();
        let buffer = memory.alloc(0, 1000, false).unwrap();
        assert!(buffer < imported || buffer >= imported + BLOCK);
    }
}
