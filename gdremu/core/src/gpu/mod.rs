//! GPU memory, and the providers that give its pages to the driver and to the CPU.
//!
//! ```text
//! Provider      what the driver and the libc hooks see: pin pages, map them, zap a mapping
//!   host        HostProvider: emulated GPUs, whose memory is mapped wherever it is needed
//!     memory    addresses, buffers, physical objects, page tables: metadata only
//!       pins      page tables: they keep physical memory alive, and are revoked when it is freed
//!       vmm       CUDA's virtual memory management
//!       physical  the GPUs' memory, reference-counted
//!       ranges    free lists of addresses and of physical memory
//!     backing   where that memory is: a memfd per GPU
//!       emugpu  or in the test kernel's module of that name
//!       step    the operations of a metadata change on it
//!   nvidia      NvidiaProvider: memory of real GPUs
//!   pci         where emulated GPUs are on the bus
//!   buffers     cuMemAlloc'ed buffers, of which small ones share a block, for both
//!   mmap        the calls that make memory appear and fault, for both
//! ```

mod backing;
mod buffers;
pub mod emugpu;
pub mod host;
pub mod memory;
mod mmap;
pub mod nvidia;
pub mod pci;
pub mod physical;
mod pins;
mod ranges;
mod step;
mod vmm;

pub use host::{HostProvider, Shared};
pub use memory::{PageTable, PageTableId, Run};
pub use nvidia::NvidiaProvider;

use crate::config::{GpuConfig, ProviderKind};
use crate::errno::Errno;

/// Where GPU memory is: the driver pins pages of it, the hooks map them for the CPU.
pub trait Provider: Send {
    /// Pins `[va, va + len)`, both multiples of the GPU page (64 KiB).
    ///
    /// The physical memory stays alive until [`Provider::put_pages`], even if the program frees
    /// it before. If it does and `persistent` is false, the call that frees it names this table
    /// among the revoked ones; the caller then zaps its mapping and puts the pages.
    ///
    /// # Errors
    /// - `EINVAL`: not GPU memory of this process, or not all of it, or of two GPUs, or not allowed
    ///   for GPUDirect, or tokens that are not this process's.
    /// - `ENOMEM`: BAR1 has no room.
    /// - `EIO`: a token without an address space.
    /// - `ENOTSUPP` (524): `force_pcie` on a GPU that is not coherent.
    fn get_pages(
        &mut self,
        va: u64,
        len: u64,
        tokens: (u64, u32),
        persistent: bool,
        force_pcie: bool,
    ) -> Result<PageTableId, Errno>;

    /// Gives pinned pages back. Mappings of them must be gone.
    fn put_pages(&mut self, table: PageTableId);

    /// Maps `len` bytes of a page table from `offset` on into the CPU's address space, readable,
    /// writable, shared and absent from forked children. Both are multiples of the host's page
    /// size.
    ///
    /// # Errors
    /// `EINVAL`: beyond the table, or no such table. Otherwise the error of mmap(2).
    fn map(&mut self, table: PageTableId, offset: u64, len: usize) -> Result<usize, Errno>;

    /// Takes the pages out of a mapping: the next touch raises SIGBUS. The addresses stay occupied
    /// until munmap.
    fn zap(&mut self, addr: usize, len: usize) {
        // SAFETY: the driver names a mapping that it made with `map`, and which its owner has lost.
        unsafe { mmap::poison(addr, len) };
    }

    /// In a forked child: what is pinned is the parent's.
    fn after_fork(&mut self) {}

    /// The emulated GPUs. Only the stand-in libcuda calls this.
    fn host(&mut self) -> &mut HostProvider {
        panic!("the preload library is not the one for --provider nvidia")
    }

    /// The real GPUs. Only replaced functions of libcuda call this.
    fn nvidia(&mut self) -> &mut NvidiaProvider {
        panic!("the preload library is the one for --provider nvidia")
    }
}

/// The provider that the configuration asks for.
pub fn provider(config: &GpuConfig) -> Box<dyn Provider> {
    match config.provider {
        ProviderKind::Nvidia => Box::<NvidiaProvider>::default(),
        ProviderKind::Host | ProviderKind::Emugpu => Box::new(HostProvider::new(config)),
    }
}
