//! Counts changes of the address space, so that running GPU kernels repeat their lookups.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Records that memory was mapped, unmapped or changed its access.
pub(crate) fn changed() {
    CHANGES.fetch_add(1, Ordering::SeqCst);
}

pub(crate) fn changes() -> u64 {
    CHANGES.load(Ordering::SeqCst)
}
