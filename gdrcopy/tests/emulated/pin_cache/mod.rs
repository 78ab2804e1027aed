//! Pins that are kept for later use, under gdremu.

mod ranges;
mod shortage;

use gdrcopy::pin_cache::{CachedSlice, PinCacheReport};
use gdrcopy::{Gdr, PinCache};

/// More than is ever pinned.
const UNLIMITED: usize = 1 << 40;

fn cache(capacity: usize) -> PinCache {
    let gdr = Gdr::open().expect("an emulated driver");
    PinCache::new(&gdr, capacity).expect("an emulated CUDA driver")
}

fn get(cache: &PinCache, address: u64, len: usize) -> gdrcopy::Result<CachedSlice> {
    // SAFETY: no Rust code but these tests uses emulated GPU memory, and slices are not used after a free.
    unsafe { cache.get(address, len) }
}

fn report(cache: &PinCache) -> PinCacheReport {
    cache.report().expect("this process")
}

/// Hits and misses.
fn calls(cache: &PinCache) -> (u64, u64) {
    let report = report(cache);
    (report.hits, report.misses)
}
