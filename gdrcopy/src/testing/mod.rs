//! Simulates a GPU and its driver for the unit tests of programs, without gdrdrv, CUDA or gdremu. Needs the feature
//! `testing`, for dev-dependencies.
//!
//! GPU memory is memory of the process, so nothing here shows how fast anything is, and a missing fence goes unnoticed on
//! most CPUs. Parts that need CUDA itself are absent ([`Transfer`](crate::Transfer), [`PinCache`](crate::PinCache),
//! dma-bufs, host memory); gdremu has them.

mod gpu;
mod memory;
#[cfg(all(test, not(gdrapi_loom)))]
mod tests;

pub use gpu::Gpu;
#[cfg(test)]
pub(crate) use memory::Memory;
