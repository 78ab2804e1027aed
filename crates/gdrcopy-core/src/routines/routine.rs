//! The type of a copy routine. A routine consists of the copy functions that use one instruction set.

use core::ptr;

/// The size of a cache line in bytes, which is also the size of the CPU's largest access that crosses PCIe undivided.
pub(super) const LINE: usize = 64;

/// Copies `len` bytes from `src` to `dst`.
///
/// # Safety
/// The contract of [`write()`](super::write) or [`read`](super::read), and the CPU must be able to run the function.
pub(crate) type CopyFn = unsafe fn(dst: *mut u8, src: *const u8, len: usize);

/// Copies a line or a block of fixed size from `src` to `dst`.
///
/// # Safety
/// `src` must be readable and `dst` writable for that size. The one in device memory must be aligned to that size.
/// The CPU must have the instructions that the function uses.
pub(super) type BlockFn = unsafe fn(dst: *mut u8, src: *const u8);

/// The copy functions that use one instruction set.
#[derive(Debug)]
pub struct Routine {
    /// The name by which the variable `GDRCOPY_ISA` selects the routine.
    pub(crate) name: &'static str,
    pub(crate) write: CopyFn,
    /// Makes one write of a batch, as `write` does, but its stores may be unaligned (see the rules of `routines`).
    pub(crate) write_one: CopyFn,
    pub(crate) read: CopyFn,
}

/// One write of a batch, or one read of a gather. A gather is a batch of reads.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// The destination, writable for `len` bytes.
    pub dst: *mut u8,
    /// The source, readable for `len` bytes. If it is in a mapping, all cache lines that the bytes touch are readable.
    pub src: *const u8,
    /// The number of bytes.
    pub len: usize,
}

impl Routine {
    /// The name by which the variable `GDRCOPY_ISA` selects the routine.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// The name of the routine that selects the best routine at the first copy.
pub const FIRST: &str = "first";

/// The name of the routine for cached mappings.
pub(super) const MEMCPY: &str = "memcpy";

/// Copies by the C library's memcpy.
///
/// # Safety
/// `src` must be readable and `dst` writable for `len` bytes, and the two must not overlap.
#[inline(always)]
pub(super) unsafe fn memcpy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { ptr::copy_nonoverlapping(src, dst, len) }
}
