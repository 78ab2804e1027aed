#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))] // Items of a feature are marked as such.
#![warn(clippy::missing_errors_doc, clippy::return_self_not_must_use)]

mod access;
mod error;
mod gdr;
mod mapping;
pub mod memory;
pub mod owned;
mod pin;
mod pool;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use access::{Array, Batch, Mapped, MappedSlice, Word, Words};
pub use error::{CudaError, Error, GdrError, OsError, Result};
pub use gdr::{Gdr, GdrOptions};
pub use gdrcopy_core::backend::dmabuf::DmaBufExport;
pub use gdrcopy_core::options::Backend;
pub use gdrcopy_core::types::{MapFlag, MappingType, PinFlags, Version};
pub use mapping::Mapping;
pub use pin::{Pin, PinInfo, export_dma_buf};
pub use pool::{Pool, PoolBuffer, PoolOptions, PoolReport};
