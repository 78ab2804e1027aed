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
//! let address = device_pointer(); // from cuMemAlloc, 64 KiB aligned
//! let gdr = Gdr::open()?;
//! let pin = gdr.pin(address, 1 << 20, PinFlags::DEFAULT)?;
//! let mut mapping = pin.map(1 << 20, MapFlag::Default)?;
//! mapping.write(0, b"straight into GPU memory")?;
//! # Ok(())
//! # }
//! ```
//!
//! # Layers
//!
//! A call goes down through these modules, in this order, and never back up:
//!
//! ```text
//! gdr → pin → mapping   owners of an open driver, a pin, a mapping; pin_state is what the last two share
//! backend               what a driver can do (trait): gdrdrv over the kernel module, dmabuf over CUDA
//! copy                  one copy: word or not, mapping type, threads
//! sys                   mmap, the calls to the module and to CUDA, forked children
//! routines              the instructions of a copy, per architecture; hot is what each copy reads
//! error, types, log, settings, sync, cancel
//! ```
//!
//! `unsafe` is in `copy`, `sys`, `routines`, `hot` and `cancel` only; the other modules forbid it. What is
//! public but hidden serves the C library (`libgdrapi`), which is built on this crate.

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
mod options;
mod pin;
mod pin_state;
#[doc(hidden)]
pub mod routines;
#[doc(hidden)]
pub mod sync;
#[doc(hidden)]
pub mod sys;
mod types;

pub use access::{Array, Batch, MappedSlice, Scalar, Word, Words};
pub use copy::{MAX_THREADS, set_threads};
pub use error::{Call, CudaError, Error, Result};
pub use gdr::Gdr;
pub use mapping::Mapping;
pub use options::{Backend, Options};
pub use pin::Pin;
pub use types::{Attribute, Info, MapFlag, MappingType, P2pTokens, PinFlags, Version};
