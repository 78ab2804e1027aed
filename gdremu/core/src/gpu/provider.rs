//! The interface to pin and map GPU memory. The emulated driver uses it, and so do gdremu's hooks of libc functions.

use std::any::Any;

use super::address_space::PageTableId;
use super::mmap;
use crate::errno::Errno;

/// A request to pin `[va, va + len)`. gdrdrv 2.4.2 and later round `len` up to whole GPU pages of 64 KiB.
#[derive(Clone, Copy, Debug)]
pub struct PinRequest {
    pub va: u64,
    pub len: u64,
    pub tokens: (u64, u32),
    pub persistent: bool,
    pub force_pcie: bool,
}

pub trait Provider: Any + Send {
    /// Pins a range and returns the id of a page table, which lists the pinned memory. The memory stays alive until
    /// [`Provider::put_pages`], even if the program frees it before. If the pin is not persistent, the function that
    /// frees the memory returns this id. The caller of that function removes the pages from the CPU's mapping
    /// ([`Provider::zap`]), then calls `put_pages`.
    ///
    /// # Errors
    /// - `EINVAL` if the range is not all memory of one GPU and of this process, if GPUDirect is not allowed, if the
    ///   tokens are another process's, or if the GPU driver refuses `len`.
    /// - `ENOMEM`: BAR1 has no room.
    /// - `ENOTSUPP` (524): `force_pcie` on a GPU that is not coherent.
    fn get_pages(&mut self, request: &PinRequest) -> Result<PageTableId, Errno>;

    /// Releases pinned pages. The CPU must not have them mapped any more.
    fn put_pages(&mut self, table: PageTableId);

    /// Maps `len` bytes of the pinned memory from `offset` on into the CPU's address space, readable, writable, shared
    /// and absent from forked children. Uses the address `fixed` if the program passed it with `MAP_FIXED`. All numbers
    /// are multiples of the host's page size.
    ///
    /// # Errors
    /// `EINVAL` if the range exceeds the pinned memory, or there is no such page table. Otherwise the error of mmap(2).
    fn map(&mut self, table: PageTableId, offset: u64, len: usize, fixed: Option<usize>) -> Result<usize, Errno>;

    /// Removes the pages from a mapping. Accesses of the mapping raise SIGBUS until it is unmapped.
    fn zap(&mut self, addr: usize, len: usize) {
        // SAFETY: the driver passes a mapping that it made with `map`, and the mapping's pin has ended.
        unsafe { mmap::poison(addr, len) };
    }

    /// Forgets pins in a forked child, because they are the parent's.
    fn after_fork(&mut self) {}
}

impl dyn Provider {
    pub fn as_kind<P: Provider>(&mut self) -> Option<&mut P> {
        (self as &mut dyn Any).downcast_mut()
    }
}
