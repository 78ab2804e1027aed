#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))] // On docs.rs, marks the items that need a Cargo feature.
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
/// The result of [`export_dma_buf`] and [`Pin::export_dma_buf`].
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use std::os::fd::AsRawFd;
/// use gdrcopy::{DmaBufExport, PinFlags};
/// let DmaBufExport { fd, offset, .. } = gdrcopy::export_dma_buf(gpu.device_pointer(), 4096, PinFlags::DEFAULT)?;
/// println!("register {} from byte {offset} on", fd.as_raw_fd()); // by ibv_reg_dmabuf_mr
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use gdrcopy_core::backend::dmabuf::DmaBufExport;
/// Selects what pins and maps memory, such as gdrdrv, for [`GdrOptions::backend`].
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::{Backend, Gdr};
/// let gdr = Gdr::options().backend(Backend::DmaBuf).open()?; // gdrdrv is not needed
/// assert!(gdr.uses_dma_bufs()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use gdrcopy_core::options::Backend;
/// Selects a type of mapping, for [`Pin::map`] and [`memory::MapOptions`].
///
/// ```
/// use gdrcopy::{MapFlag, memory::MapOptions};
/// let options = MapOptions::default().map_flag(MapFlag::WriteCombining); // or an error
/// ```
pub use gdrcopy_core::types::MapFlag;
/// The type of a mapping, which says how the CPU caches the memory. [`Mapped::mapping_type`] returns it.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// # let mapping = gpu.mapping()?;
/// use gdrcopy::{Mapped, MappingType};
/// let overlaps = mapping.mapping_type() == MappingType::WriteCombining; // the loads of a gather
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "gdr_get_mapping_type_string")]
pub use gdrcopy_core::types::MappingType;
/// Selects how memory is pinned, for [`Gdr::pin`] and [`memory::MapOptions`].
///
/// ```
/// use gdrcopy::{PinFlags, memory::MapOptions};
/// let options = MapOptions::default().pin_flags(PinFlags::FORCE_PCIE); // on Grace-Hopper, too
/// ```
pub use gdrcopy_core::types::PinFlags;
/// A version with a major and a minor number, such as that of the driver ([`Gdr::driver_version`]).
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::Version;
/// let driver = gdrcopy::Gdr::open()?.driver_version()?;
/// assert!(driver >= Version::OLDEST_GDRDRV, "gdrdrv {driver}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("gdr_runtime_get_version", "gdrx_version"))]
pub use gdrcopy_core::types::Version;
pub use mapping::Mapping;
pub use pin::{Pin, PinInfo, export_dma_buf};
pub use pool::{Pool, PoolBuffer, PoolOptions, PoolReport};
