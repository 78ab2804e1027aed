//! A buffer of a pool.
#![forbid(unsafe_code)]

use crate::access::{Mapped, MappedSlice, sealed};
use crate::pool::blocks::Block;
use crate::pool::chunk::Chunk;
use std::sync::Arc;

/// GPU memory from a [`Pool`](crate::Pool), pinned and mapped. Dropping the buffer gives the memory back.
///
/// A buffer may outlive its pool, and any thread may drop it. GPU work that uses the buffer must have finished before
/// the drop, because the next buffer may get the same memory.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::memory::CudaAllocator;
/// use gdrcopy::{Gdr, Mapped, Pool};
/// let pool = Pool::new(&Gdr::open()?, CudaAllocator::new(0)?);
/// let buffer = pool.alloc(1000)?;
/// drop(pool); // the buffer stays
/// buffer.write(0, b"message")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PoolBuffer {
    chunk: Arc<Chunk>,
    block: Block,
    len: usize,
}

impl PoolBuffer {
    /// Takes a buffer of `len` bytes in this chunk, or returns `None` if the chunk has no room. `len` is at least 1,
    /// and `align` is a power of two.
    pub(super) fn take(chunk: &Arc<Chunk>, len: usize, align: u64) -> Option<PoolBuffer> {
        let block = chunk.take(len as u64, align)?;
        Some(PoolBuffer { chunk: Arc::clone(chunk), block, len })
    }
}

impl sealed::Sealed for PoolBuffer {}

impl Mapped for PoolBuffer {
    #[inline]
    fn as_slice(&self) -> MappedSlice<'_> {
        self.chunk.slice(self.block, self.len)
    }
}

impl Drop for PoolBuffer {
    fn drop(&mut self) {
        self.chunk.give_back(self.block);
    }
}
