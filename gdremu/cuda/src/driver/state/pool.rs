//! Memory pools.

use std::collections::BTreeSet;

/// CUmemoryPool.
pub(crate) type PoolHandle = usize;

/// A pool.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) gpu: usize,
    /// Its memory can be pinned.
    pub(crate) rdma: bool,
    /// The reuse policies of attributes 1 to 3.
    pub(crate) reuse: [i32; 3],
    /// Bytes that the program wants kept after a free. Stored and otherwise ignored.
    pub(crate) release_threshold: u64,
    /// Bytes that it can have in use.
    pub(crate) max_size: u64,
    /// Other GPUs that may access its memory.
    pub(crate) peers: BTreeSet<usize>,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
}

impl Pool {
    pub(crate) fn new(gpu: usize, rdma: bool, max_size: u64) -> Self {
        let (reuse, peers) = ([1; 3], BTreeSet::new());
        Pool { gpu, rdma, reuse, release_threshold: 0, max_size, peers, used: 0, used_high: 0 }
    }
}
