//! CPU access to NVIDIA GPU memory through PCIe BAR1: the lowest-latency way in and out of a GPU.
//!
//! This crate is a drop-in replacement for `libgdrapi`, the user-space library of NVIDIA GDRCopy. C
//! programs load it as `libgdrapi.so.2` and call the functions of `include/gdrapi.h`; Rust programs
//! use the types below, which own what they stand for:
//!
//! ```no_run
//! # fn device_pointer() -> u64 { 0 }
//! use gdrapi::{Gdr, MapFlag, PinFlags};
//!
//! # fn main() -> Result<(), gdrapi::Error> {
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
//! capi      the C door: argument checks, handles, errno; C's oddities end here
//! gdr → pin → mapping      the safe core, owners of an open driver, a pin, a mapping; pinned is what the
//!           last two share
//! backend   what a driver can do (trait): gdrdrv over the kernel module, dmabuf over CUDA
//! region    the CPU addresses of a mapping         uapi, cuda   the calls to module and CUDA
//! transfer  one copy, by the type of the mapping   copy   the copy kernels
//! ```
//!
//! Beside them stand `process` (what a forked child must know), `types`, `error`, `log`, `settings` and
//! `sync`. `unsafe` lives in `capi`, `region`, `transfer`, `uapi`, `cuda`, `process` and `copy` alone; the other
//! modules forbid it.

mod backend;
mod capi;
#[doc(hidden)]
pub mod copy;
mod cuda;
mod error;
mod gdr;
mod log;
mod mapping;
mod pin;
mod pinned;
mod process;
mod region;
mod settings;
mod sync;
mod transfer;
mod types;
mod uapi;

pub use cuda::CudaError;
pub use error::{Error, Result};
pub use gdr::Gdr;
pub use mapping::Mapping;
pub use pin::Pin;
pub use types::{Attribute, Info, MapFlag, MappingType, P2pTokens, PinFlags, Version};
pub use uapi::Call;

#[doc(hidden)]
pub use capi::exports;
