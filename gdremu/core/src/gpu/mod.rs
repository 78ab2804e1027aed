//! GPU memory, and the providers that give its pages to the driver and to the CPU.
//!
//! ```text
//! provider            what the driver and the libc hooks see: pin pages, map them, zap a mapping
//!   files             HostProvider: emulated GPUs, whose memory is mapped wherever it is needed
//!     address_space   addresses, buffers, physical objects, page tables: metadata only
//!       pins          page tables: they keep physical memory alive, and are revoked when it is freed
//!       reservations  CUDA's virtual memory management
//!       physical      the GPUs' memory, reference-counted
//!       ranges        free lists of addresses and of physical memory
//!     backing         where that memory is: a memfd per GPU
//!       emugpu        or in the test kernel's module of that name
//!   nvidia            NvidiaProvider: memory of real GPUs
//!   pci               where emulated GPUs are on the bus
//!   buffers           cuMemAlloc'ed buffers, of which small ones share a block, for both
//!   mmap              the calls that make memory appear and fault, for both
//! ```

pub mod address_space;
mod backing;
mod buffers;
pub mod emugpu;
pub mod files;
mod mmap;
pub mod nvidia;
pub mod pci;
pub mod physical;
mod pins;
mod provider;
mod ranges;
mod reservations;

pub use address_space::{PageTable, PageTableId, Run};
pub use files::{Exported, HostProvider, Shared};
pub use mmap::page_size;
pub use nvidia::NvidiaProvider;
pub use provider::{PinRequest, Provider};

use crate::config::{GpuConfig, ProviderKind};

pub fn provider(config: &GpuConfig) -> Box<dyn Provider> {
    match config.provider {
        ProviderKind::Nvidia => Box::<NvidiaProvider>::default(),
        ProviderKind::Host | ProviderKind::Emugpu => Box::new(HostProvider::new(config)),
    }
}
