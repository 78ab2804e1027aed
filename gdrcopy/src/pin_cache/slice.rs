//! A range of a mapping that a pin cache shares.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::access::{Mapped, MappedSlice};
use crate::mapping::Mapping;

/// GPU memory from a [`PinCache`](crate::PinCache). It keeps the mapping that it is a part of, also after that has
/// left the cache. Clones are the same memory.
#[derive(Clone, Debug)]
pub struct CachedSlice {
    mapping: Arc<Mapping>,
    /// Where in the mapping it starts.
    offset: usize,
    len: usize,
}

impl CachedSlice {
    /// `len` bytes of the mapping from `offset` on, which must be inside.
    pub(super) fn new(mapping: Arc<Mapping>, offset: usize, len: usize) -> CachedSlice {
        CachedSlice { mapping, offset, len }
    }

    /// Device address of its first byte, for GPU kernels and CUDA.
    pub fn device_address(&self) -> u64 {
        self.as_slice().device_address()
    }

    /// Bytes, as passed to [`PinCache::get`](crate::PinCache::get).
    #[expect(clippy::len_without_is_empty, reason = "no cached slice is empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Mapped for CachedSlice {
    #[inline]
    fn as_slice(&self) -> MappedSlice<'_> {
        let part = self.mapping.as_slice().part(self.offset, self.len);
        part.expect("an entry contains what it serves")
    }
}
