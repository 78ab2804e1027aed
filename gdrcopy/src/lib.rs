//! Low-latency CPU access to NVIDIA GPU memory through PCIe BAR1.
//!
//! The GPU's memory is pinned by the kernel module gdrdrv, or exported by CUDA as a dma-buf, and mapped
//! into this process. No C library is needed, at build time or at run time.
//!
//! ```no_run
//! # fn device_pointer() -> u64 { 0 }
//! use gdrcopy::{Gdr, MapFlag, PinFlags};
//!
//! # fn main() -> Result<(), gdrcopy::Error> {
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
//! # }
//! ```
//!
//! Pinning is unsafe, because only the caller knows whose memory it is; everything after it is safe, and takes
//! `&self`, so that threads share a mapping. [`MappedSlice`] has the operations, and their order in terms of the
//! memory model.
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
//! A call goes down through these modules, in this order, and never back up:
//!
//! ```text
//! pool, pin_cache       many buffers of few pins; pins for later use. memory is what pools are made of
//! transfer              large copies by the mapping or by CUDA's copy engine; system is what this machine has
//! signal                flags, counters and rings between the CPU and GPU kernels
//! options → gdr → pin → mapping   owners of an open driver, a pin, a mapping; pin_state is what the last two share
//! access                slices, words, arrays, batches and gathers of a mapping: bounds and process are checked here
//! backend               what a driver can do (trait): gdrdrv over the kernel module, dmabuf and host over CUDA
//! copy                  one copy: word or not, mapping type, threads
//! sys                   mmap, the calls to the module and to CUDA, forked children
//! routines              the instructions of a copy, per architecture; hot is what each copy reads
//! error, types, sync, cancel
//! ```
//!
//! ARCHITECTURE.md lists the modules with `unsafe`; the others forbid it. What is public but hidden serves the C
//! library (`libgdrapi`), which is built on this crate.

mod access;
mod backend;
#[doc(hidden)]
pub mod cancel;
#[doc(hidden)]
pub mod copy;
mod error;
mod gdr;
mod hot;
mod mapping;
mod memory;
mod options;
mod pin;
mod pin_cache;
mod pin_state;
mod pool;
#[doc(hidden)]
pub mod routines;
mod signal;
#[doc(hidden)]
pub mod sync;
#[doc(hidden)]
pub mod sys;
mod system;
mod transfer;
mod types;

pub use access::{Array, Batch, MappedSlice, Scalar, Word, Words};
pub use copy::{MAX_THREADS, set_threads};
pub use error::{Call, CudaError, Error, Result};
pub use gdr::Gdr;
pub use mapping::Mapping;
#[cfg(feature = "cudarc")]
pub use memory::CudarcAllocator;
pub use memory::{CudaAllocator, DeviceAllocator, DeviceMemory, RawMemory};
pub use options::{Backend, Options};
pub use pin::{DmaBufExport, Pin};
pub use pin_cache::{PinCache, PinCacheReport};
pub use pool::{Pool, PoolBuffer, PoolOptions, PoolReport};
pub use signal::{Counter, CounterWriter, DEVICE_HEADER, Flag, Ring, RingReceiver, RingSender};
pub use sys::cuda::host::HostMemory;
pub use system::{Support, System, system, system_with_cuda};
pub use transfer::{Route, Transfer, TransferOptions};
pub use types::{Attribute, Info, MapFlag, MappingType, P2pTokens, PinFlags, Version};
