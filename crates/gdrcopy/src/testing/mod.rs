//! Simulates a GPU and its driver for the unit tests of programs, without gdrdrv, CUDA or gdremu. This module needs the
//! feature `testing`, which programs enable in their dev-dependencies.
//!
//! GPU memory is memory of the process, so nothing here shows how fast anything is, and a missing fence goes unnoticed
//! on most CPUs. Parts that need CUDA itself (dma-bufs, host memory) are absent. The program gdremu emulates them.
//!
//! ThreadSanitizer reports a data race if threads copy the same bytes at the same time. Safe code may do so
//! nevertheless, because the copies are atomic accesses (of several sizes) and volatile accesses, and the memory does
//! not come from Rust's allocator.

mod gpu;
mod host_memory;
#[cfg(test)]
mod tests;

pub use gpu::Gpu;
#[cfg(test)]
pub(crate) use host_memory::Memory;

/// Returns a configuration that tests `all` cases of a property, or `under_miri` cases under Miri, where a case takes
/// longer.
#[cfg(test)]
pub(crate) fn cases(all: u32, under_miri: u32) -> proptest::test_runner::Config {
    let cases = if cfg!(miri) { under_miri } else { all };
    proptest::test_runner::Config { cases, failure_persistence: None, ..Default::default() }
}
