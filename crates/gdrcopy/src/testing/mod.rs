//! Simulates a GPU and its driver for the unit tests of programs, without gdrdrv, CUDA or gdremu. Needs the feature
//! `testing`, for dev-dependencies.
//!
//! GPU memory is memory of the process, so nothing here shows how fast anything is, and a missing fence goes unnoticed
//! on most CPUs. Parts that need CUDA itself are absent (dma-bufs, host memory); gdremu has them.
//!
//! ThreadSanitizer reports threads that copy the same bytes at the same time. Safe code may do so. Copies are
//! atomics of several sizes and volatile accesses, to memory outside of Rust's.

mod gpu;
mod host_memory;
#[cfg(test)]
mod tests;

pub use gpu::Gpu;
#[cfg(test)]
pub(crate) use host_memory::Memory;

/// The number of cases of a property, and that for Miri, which takes longer.
#[cfg(test)]
pub(crate) fn cases(all: u32, under_miri: u32) -> proptest::test_runner::Config {
    let cases = if cfg!(miri) { under_miri } else { all };
    proptest::test_runner::Config { cases, failure_persistence: None, ..Default::default() }
}
