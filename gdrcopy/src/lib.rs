//! Low-latency CPU access to NVIDIA GPU memory through PCIe BAR1.
//!
//! The GPU's memory is pinned by the kernel module gdrdrv, or exported by CUDA as a dma-buf, and mapped
//! into this process. No C library is needed, at build time or at run time.
//!
//! ```
//! # mod gpu { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs")); }
//! # gpu::run(|gpu| {
//! # let device_pointer = || gpu.device_pointer();
//! use gdrcopy::{Gdr, MapFlag, Mapped, PinFlags};
//!
//! let address = device_pointer(); // from cuMemAlloc or cudaMalloc, of any alignment
//! let gdr = Gdr::open()?;
//! // The memory stays allocated until the mapping is dropped, and holds plain bytes.
//! let pin = unsafe { gdr.pin(address, 1 << 20, PinFlags::DEFAULT) }?;
//! let mapping = pin.map(1 << 20, MapFlag::Default)?;
//!
//! mapping.write(0, b"straight into GPU memory")?; // copies of any size
//! let flag = mapping.word::<u32>(4096)?; // words: one PCIe transaction each
//! flag.store(1);
//!
//! let mut batch = mapping.batch()?; // many writes, one fence
//! for i in 0..64 {
//!     batch.write(8192 + 64 * i, &[i as u8; 64])?;
//! }
//! batch.commit();
//! # Ok(())
//! # });
//! ```
//!
//! Pinning is unsafe, because only the caller knows whose memory it is; everything after it is safe, and takes
//! `&self`, so that threads share a mapping. [`MappedSlice`] has the operations, and their order in terms of the
//! memory model.
//!
//! What borrows a mapping has its lifetime; structs, threads and tasks hold what [`owned`] has. Unit tests need no GPU with
//! the feature `testing`, whose module `testing` has one.
//!
//! The crate reads no environment variable ([`Gdr::options`] has the choices), and logs through the
//! [`log`](https://docs.rs/log) facade.
//!
//! # Order
//!
//! A mapping is memory that the GPU shares with this program:
//!
//! | operation | order |
//! | --- | --- |
//! | `write`, [`Word::store`], [`Batch::commit`] | release: the GPU sees it after all that the thread wrote before, and before all that the thread writes later |
//! | writes of one batch | none among each other; all come before what follows the commit |
//! | `read`, [`Word::load`], `read_many`, [`Words::load_all`] | acquire: the bytes are no older than the start of the call, and later accesses of the thread come after it |
//! | reads of one gather | none among each other |
//! | `flush` | returns when all earlier writes of the thread have arrived in GPU memory |
//!
//! A write that has returned has left the CPU or is about to. PCIe keeps writes in order: a flag that is written
//! after data arrives after it.
//!
//! # Layers
//!
//! A call goes down through these modules, in this order, and never back up; then into the crate gdrcopy-core, which
//! has the drivers and the copies:
//!
//! ```text
//! owned                views that keep their memory, of pools and others
//! pool, pin_cache      many buffers of few pins; pins for later use
//! transfer             large copies by the mapping or by CUDA's copy engine; system is what this machine has
//! signal               flags, counters and rings between the CPU and GPU kernels
//! memory               owners and allocators of GPU memory, and mappings that keep it
//! gdr → pin → mapping  owners of an open driver, a pin, a mapping
//! access               slices, words, arrays, batches and gathers of a mapping: bounds and process are checked here
//! ```

pub mod access;
pub mod error;
mod gdr;
mod mapping;
pub mod memory;
pub mod owned;
mod pin;
pub mod pin_cache;
pub mod pool;
pub mod signal;
pub mod system;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod transfer;

pub use access::{Array, Batch, Mapped, MappedSlice, Word, Words};
pub use error::{Error, Result};
pub use gdr::{Gdr, Options};
pub use gdrcopy_core::copy::{MAX_THREADS, set_threads};
pub use gdrcopy_core::options::Backend;
pub use gdrcopy_core::pin::DmaBufExport;
pub use gdrcopy_core::types::{MapFlag, MappingType, PinFlags, Version};
pub use mapping::Mapping;
pub use memory::OwnedMapping;
pub use owned::Owned;
pub use pin::{Info, Pin, export_dma_buf};
pub use pin_cache::PinCache;
pub use pool::{Pool, PoolBuffer};
pub use transfer::Transfer;
