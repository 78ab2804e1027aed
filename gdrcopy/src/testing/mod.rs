//! A GPU and its driver without either, for the unit tests of programs: no gdrdrv, no CUDA, no gdremu. Needs the
//! feature `testing`, for dev-dependencies.
//!
//! GPU memory is memory of the process, so nothing here shows how fast anything is, and a missing fence goes unnoticed on
//! most CPUs. What needs CUDA itself is not there: [`Transfer`](crate::Transfer), [`PinCache`](crate::PinCache),
//! dma-bufs, host memory; gdremu has it.

mod gpu;
mod memory;
#[cfg(all(test, not(gdrapi_loom)))]
mod tests;

pub use gpu::Gpu;
#[cfg(test)]
pub(crate) use memory::Memory;
