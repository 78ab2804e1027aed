//! Owners and allocators of GPU memory, and mappings that keep their memory alive.

mod cuda;
#[cfg(feature = "cudarc-0-19")]
mod cudarc;
mod device;
mod owned;
mod shared;

pub use cuda::{CudaAllocator, HostMemory};
#[cfg(feature = "cudarc-0-19")]
pub use cudarc::CudarcAllocator;
pub use device::{DeviceAllocator, DeviceMemory, RawMemory};
pub(crate) use owned::whole_pages;
pub use owned::{MapOptions, OwnedMapping};
pub use shared::SharedMapping;
