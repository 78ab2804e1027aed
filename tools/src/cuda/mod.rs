//! Calls the CUDA driver for GPUs, their memory, pinned host memory, and CUDA's own copies.
//!
//! Imports: buffer → created → gpu → driver; survey → gpu, driver.

mod buffer;
mod created;
pub(crate) mod driver;
mod gpu;
pub(crate) mod survey;

pub(crate) use buffer::{DeviceBuffer, GPU_PAGE, Memory, PinnedBuffer};
pub(crate) use driver::CudaError;
pub(crate) use gpu::{Device, Gpu};
