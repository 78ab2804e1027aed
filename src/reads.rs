//! Which reads CUDA's copy engine makes.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

use gdrcopy_core::copy;
use gdrcopy_core::engines::{EngineOptions, Engines};

/// No read of fewer bytes is made by a copy engine.
static SMALLEST: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Bytes of the smallest read that any of them makes.
pub(crate) fn smallest() -> usize {
    SMALLEST.load(Ordering::Relaxed)
}

/// Reads of a `gdr_t` that a copy engine makes.
#[derive(Debug)]
pub(crate) struct Reads {
    pub(crate) engines: Engines,
    /// Reads of this many bytes and more.
    from: usize,
}

impl Reads {
    /// Makes reads of this many bytes and more. They go through a buffer even if the caller's memory is page-locked,
    /// because a timed-out read must not overwrite data that the caller wrote later.
    pub(crate) fn new(from: usize) -> Reads {
        SMALLEST.fetch_min(from, Ordering::Relaxed);
        copy::limit_plain_reads(from);
        let engines = Engines::new(EngineOptions { direct: false, ..EngineOptions::default() });
        Reads { engines, from }
    }

    /// Returns whether it makes reads of this many bytes.
    pub(crate) fn takes(&self, len: usize) -> bool {
        len >= self.from
    }
}
