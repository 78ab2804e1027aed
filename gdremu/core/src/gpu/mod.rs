//! GPU memory, and the interface to pin and map it. `files` implements this interface for emulated GPUs. gdremu-nvidia
//! implements it for real GPUs, with the help of `buffers` and `mmap`.
//!
//! ```text
//! provider            the interface, which the emulated driver and gdremu's hooks of libc functions use
//!   files             HostProvider: emulated GPUs, whose memory is mapped wherever it is needed
//!     address_space   addresses, buffers, physical objects, page tables: metadata only
//!       pins          page tables: they keep physical memory alive, and are revoked if the program frees it
//!       reservations  CUDA's virtual memory management
//!       physical      the GPUs' memory, reference-counted
//!       ranges        free lists of addresses and of physical memory
//!     backing         the files that hold the memory of emulated GPUs: a memfd per GPU
//!       emugpu        the device of the test kernel's emugpu module, which can hold the memory instead
//!   pci               the PCI addresses of the emulated GPUs
//!   buffers           the buffers of cuMemAlloc; small ones share a block
//!   mmap              the calls that map, reserve and unmap memory
//! ```

pub mod address_space;
mod backing;
pub mod buffers;
pub mod emugpu;
pub mod files;
pub mod mmap;
pub mod pci;
pub mod physical;
mod pins;
mod provider;
mod ranges;
mod reservations;

pub use address_space::{PageTable, PageTableId, Run};
pub use files::{Exported, HostProvider, Shared};
pub use mmap::page_size;
pub use provider::{PinRequest, Provider};
