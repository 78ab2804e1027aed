//! A chunk of GPU memory, and which parts of it are in use.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::access::MappedSlice;
use crate::error::Result;
use crate::gdr::Gdr;
use crate::memory::{DeviceMemory, MappedMemory};
use crate::pool::blocks::{Block, Blocks};
use crate::pool::sync::{Arc, Guard, Mutex};
use crate::pool::{PoolBuffer, PoolOptions};

#[derive(Debug)]
pub(super) struct Chunk {
    memory: MappedMemory,
    blocks: Mutex<Blocks>,
}

impl Chunk {
    /// Pins and maps `range`, which is whole pages of `memory`.
    pub(super) fn new(
        gdr: &Gdr,
        memory: Box<dyn DeviceMemory>,
        range: Range<u64>,
        options: &PoolOptions,
    ) -> Result<Arc<Chunk>> {
        let blocks = Mutex::new(Blocks::new(range.clone()));
        let (pin, map) = (options.pin_flags, options.map_flag);
        let memory = MappedMemory::new(gdr, memory, range, pin, map)?;
        Ok(Arc::new(Chunk { memory, blocks }))
    }

    /// A buffer in a chunk, if it has room. `len` is at least 1, `align` a power of two.
    pub(super) fn take(chunk: &Arc<Chunk>, len: usize, align: u64) -> Option<PoolBuffer> {
        let block = chunk.blocks.lock().take(len as u64, align)?;
        Some(PoolBuffer::new(Arc::clone(chunk), block, len))
    }

    /// Frees a block of this chunk; in a forked child, does nothing: the lock may be held for ever there.
    pub(super) fn give_back(&self, block: Block) {
        if self.memory.owner().is_current() {
            self.blocks.lock().give_back(block);
        }
    }

    /// The first `len` bytes of a block of this chunk.
    pub(super) fn slice(&self, block: Block, len: usize) -> MappedSlice<'_> {
        let offset = (block.start - self.memory.address()) as usize;
        let slice = self.memory.mapping().slice(offset..offset + len);
        slice.expect("a block is part of its chunk")
    }

    pub(super) fn blocks(&self) -> Guard<'_, Blocks> {
        self.blocks.lock()
    }
}
