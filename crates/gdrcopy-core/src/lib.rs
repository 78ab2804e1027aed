#![doc = include_str!("../README.md")]
//!
//! A call goes down through these modules, in this order, and never back up:
//!
//! ```text
//! gdr → pin → mapping   owners of an open driver, a pin, a mapping
//! backend               the trait of a driver: gdrdrv implements it by the kernel module, dmabuf and host by CUDA
//! copy                  chooses how a copy is made, by its size and the mapping's type
//! sys                   calls mmap, the module and CUDA, and detects forked children
//! routines              the instructions of a copy, per architecture; hot: the data that each copy reads
//! options, error, types, sync, cancel
//!
//! stderr, variables, heap      for the C libraries: their log, environment variables, and allocations that can fail
//! ```
#![allow(missing_docs, reason = "public for the libraries of this workspace only")]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("gdrcopy works on 64-bit Linux only: there is no gdrdrv for others");

pub mod backend;
pub mod cancel;
pub mod copy;
pub mod error;
pub mod gdr;
pub mod heap;
mod hot;
pub mod mapping;
pub mod options;
pub mod pin;
pub mod routines;
pub mod stderr;
pub mod sync;
pub mod sys;
pub mod types;
pub mod variables;

pub use error::{Error, Result};
pub use gdr::RawGdr;
pub use mapping::RawMapping;
pub use pin::RawPin;
