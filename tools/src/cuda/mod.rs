//! The CUDA driver: GPUs, their memory, pinned host memory, and CUDA's own copies, which judge the
//! others.

mod buffer;
mod driver;
mod gpu;
mod host;
mod pool;
mod vmm;

pub use buffer::{DeviceBuffer, GPU_PAGE, Memory};
pub use driver::{CudaError, Driver};
pub use gpu::{Device, Gpu};
pub use host::PinnedBuffer;

pub(crate) use driver::functions;
