//! A buffer of a pool.
#![forbid(unsafe_code)]

use std::ops::RangeBounds;

use bytemuck::Pod;

use crate::access::{Array, MappedSlice, Scalar, Word};
use crate::error::Result;
use crate::pool::blocks::Block;
use crate::pool::chunk::Chunk;
use crate::pool::sync::Arc;

/// GPU memory from a [`Pool`](crate::Pool), pinned and mapped. Dropping it gives the memory back.
///
/// It keeps what it needs: it may outlive its pool, and be dropped by any thread. GPU work that uses it must have
/// finished before, because the next buffer may get the same memory.
#[derive(Debug)]
pub struct PoolBuffer {
    chunk: Arc<Chunk>,
    block: Block,
    len: usize,
}

impl PoolBuffer {
    /// The first `len` bytes of a block of this chunk.
    pub(super) fn new(chunk: Arc<Chunk>, block: Block, len: usize) -> PoolBuffer {
        PoolBuffer { chunk, block, len }
    }

    /// Device address of its first byte, for GPU kernels and CUDA.
    pub fn device_address(&self) -> u64 {
        self.block.start
    }

    /// Bytes, as asked for.
    #[expect(clippy::len_without_is_empty, reason = "no buffer is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// All of it.
    pub fn as_slice(&self) -> MappedSlice<'_> {
        self.chunk.slice(self.block, self.len)
    }

    /// [`MappedSlice::slice`] of all of it.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`](crate::Error::OutOfMapping).
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<MappedSlice<'_>> {
        self.as_slice().slice(range)
    }

    /// [`MappedSlice::write`] from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`](crate::Error::OutOfMapping), [`Error::ForkedChild`](crate::Error::ForkedChild);
    /// nothing is written then.
    pub fn write(&self, offset: usize, src: &[u8]) -> Result<()> {
        self.as_slice().write(offset, src)
    }

    /// [`MappedSlice::read`] from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`](crate::Error::OutOfMapping), [`Error::ForkedChild`](crate::Error::ForkedChild);
    /// nothing is read then.
    pub fn read(&self, offset: usize, dst: &mut [u8]) -> Result<()> {
        self.as_slice().read(offset, dst)
    }

    /// [`MappedSlice::word`] of all of it.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`](crate::Error::OutOfMapping),
    /// [`Error::UnalignedWord`](crate::Error::UnalignedWord).
    pub fn word<T: Scalar>(&self, offset: usize) -> Result<Word<'_, T>> {
        self.as_slice().word(offset)
    }

    /// [`MappedSlice::array`] of `len` elements from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`](crate::Error::OutOfMapping).
    pub fn array<T: Pod>(&self, offset: usize, len: usize) -> Result<Array<'_, T>> {
        self.as_slice().array(offset, len)
    }
}

impl Drop for PoolBuffer {
    fn drop(&mut self) {
        self.chunk.give_back(self.block);
    }
}
