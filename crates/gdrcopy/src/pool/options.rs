//! The options by which a pool pins and maps.
#![forbid(unsafe_code)]

use gdrcopy_core::types::GPU_PAGE_SIZE;

use crate::memory::MapOptions;
use crate::pool::blocks::LARGE;

/// The options of a [`Pool`](crate::Pool). [`Pool::options`](crate::Pool::options) returns the default ones.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::memory::CudaAllocator;
/// use gdrcopy::{Gdr, Pool};
/// let options = Pool::options().chunk_len(16 << 20); // one pin for 16 MiB of small buffers
/// let pool = options.build(&Gdr::open()?, CudaAllocator::new(0)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it makes no pool until `build` is called"]
pub struct PoolOptions {
    pub(super) chunk_len: u64,
    pub(super) map: MapOptions,
}

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        PoolOptions { chunk_len: 2 * LARGE, map: MapOptions::default() }
    }
}

impl PoolOptions {
    /// Sets the size in bytes of each chunk that buffers share. The default is 4 MiB, the minimum 2 MiB, and the size
    /// is rounded up to whole GPU pages of 64 KiB. A chunk takes that much of BAR1, which has 256 MiB on many GPUs.
    pub fn chunk_len(mut self, bytes: usize) -> PoolOptions {
        let most = u64::MAX / GPU_PAGE_SIZE * GPU_PAGE_SIZE;
        let bytes = (bytes as u64).max(LARGE);
        self.chunk_len = bytes.checked_next_multiple_of(GPU_PAGE_SIZE).unwrap_or(most);
        self
    }

    /// Sets the options by which chunks are pinned and mapped.
    pub fn map(mut self, options: MapOptions) -> PoolOptions {
        self.map = options;
        self
    }
}
