//! A chunk of GPU memory, with the metadata of its blocks.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::access::{Mapped, MappedSlice};
use crate::error::Result;
use crate::gdr::Gdr;
use crate::memory::{DeviceMemory, MapOptions, OwnedMapping};
use crate::pool::blocks::{Block, Blocks};
use gdrcopy_core::sync::{Guard, Mutex};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Chunk {
    memory: OwnedMapping,
    blocks: Mutex<Blocks>,
}

impl Chunk {
    /// Pins and maps `range`, which consists of whole pages of `memory`.
    pub(super) fn new(
        gdr: &Gdr,
        memory: Box<dyn DeviceMemory>,
        range: Range<u64>,
        options: MapOptions,
    ) -> Result<Arc<Chunk>> {
        let blocks = Mutex::new(Blocks::new(range.clone()));
        let memory = OwnedMapping::of_range(gdr, memory, range, options)?;
        Ok(Arc::new(Chunk { memory, blocks }))
    }

    /// Takes a block, or returns `None` if there is no room. `len` is at least 1, and `align` is a power of two.
    pub(super) fn take(&self, len: u64, align: u64) -> Option<Block> {
        self.blocks.lock().take(len, align)
    }

    /// Frees a block of this chunk. In a forked child it does nothing, because another thread of the parent may have
    /// held the lock at the fork. The child has no such thread, so nothing would release the lock.
    pub(super) fn give_back(&self, block: Block) {
        if self.memory.owner().is_current() {
            self.blocks.lock().give_back(block);
        }
    }

    /// Returns the first `len` bytes of a block of this chunk.
    #[inline]
    pub(super) fn slice(&self, block: Block, len: usize) -> MappedSlice<'_> {
        let offset = (block.start - self.memory.device_address()) as usize;
        let slice = self.memory.as_slice().part(offset, len);
        slice.expect("a block is part of its chunk")
    }

    pub(super) fn blocks(&self) -> Guard<'_, Blocks> {
        self.blocks.lock()
    }
}
