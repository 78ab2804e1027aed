//! How a pool pins and maps.
#![forbid(unsafe_code)]

use crate::error::Result;
use crate::gdr::Gdr;
use crate::memory::{DeviceAllocator, DeviceMemory};
use crate::pool::Pool;
use crate::pool::blocks::LARGE;
use crate::types::{GPU_PAGE_SIZE, MapFlag, PinFlags};

/// How a [`Pool`] pins and maps. Made by [`Pool::options`].
#[derive(Clone, Debug)]
pub struct PoolOptions {
    pub(super) chunk_len: u64,
    pub(super) pin_flags: PinFlags,
    pub(super) map_flag: MapFlag,
}

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        PoolOptions {
            chunk_len: 2 * LARGE,
            pin_flags: PinFlags::DEFAULT,
            map_flag: MapFlag::Default,
        }
    }
}

impl PoolOptions {
    /// Bytes in each chunk that buffers share: 4 MiB by default, at least 2 MiB, rounded up to whole GPU pages of
    /// 64 KiB. A chunk takes that much of BAR1, which is 256 MiB on many GPUs.
    pub fn chunk_len(mut self, bytes: usize) -> PoolOptions {
        let most = u64::MAX / GPU_PAGE_SIZE * GPU_PAGE_SIZE;
        let bytes = (bytes as u64).max(LARGE);
        self.chunk_len = bytes
            .checked_next_multiple_of(GPU_PAGE_SIZE)
            .unwrap_or(most);
        self
    }

    /// How chunks are pinned.
    pub fn pin_flags(mut self, flags: PinFlags) -> PoolOptions {
        self.pin_flags = flags;
        self
    }

    /// How chunks are mapped.
    pub fn map_flag(mut self, flag: MapFlag) -> PoolOptions {
        self.map_flag = flag;
        self
    }

    /// A pool that takes memory from the allocator as it needs it, and none now.
    pub fn build(self, gdr: &Gdr, allocator: impl DeviceAllocator + 'static) -> Pool {
        Pool::with_allocator(gdr, Box::new(allocator), self)
    }

    /// A pool of this memory only. Whole GPU pages of it are pinned, now.
    ///
    /// # Errors
    /// [`Error::EmptyRange`](crate::Error::EmptyRange) if no whole GPU page is in it; as for
    /// [`Gdr::pin`](crate::Gdr::pin) and [`Pin::map`](crate::Pin::map).
    pub fn build_of_memory(self, gdr: &Gdr, memory: impl DeviceMemory + 'static) -> Result<Pool> {
        Pool::with_memory(gdr, Box::new(memory), self)
    }
}
