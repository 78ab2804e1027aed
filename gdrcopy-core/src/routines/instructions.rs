//! The functions that a copy routine provides for loops over many copies, and such a loop.

use super::loads::StackLine;
use super::routine::{BlockFn, CopyFn};

/// The functions of a copy routine as constants, for loops in which they are inlined.
pub(super) trait Instructions {
    /// Bytes of the block that `LOAD_BLOCK` copies, as a power of two, 8 to 64.
    const BLOCK: usize;
    /// Copies an aligned block of device memory.
    const LOAD_BLOCK: BlockFn;
    /// Copies at least 1 byte of device memory, all of one block.
    const LOAD_PART: CopyFn = load_part::<Self>;
    /// Bytes of the block that `LOAD_SMALL` copies, at least 8.
    const SMALL: usize = Self::BLOCK;
    /// Copies a block for a word.
    const LOAD_SMALL: BlockFn = Self::LOAD_BLOCK;
    /// Copies a line to device memory.
    const STORE_LINE: BlockFn;
    /// That of the routine.
    const WRITE: CopyFn;
    /// That of the routine.
    const READ: CopyFn;
    /// Fetches the line of host memory at an address, which is about to be stored. The address may be invalid.
    const FETCH_FOR_STORE: fn(*const u8) = |_| {};
}

/// A loop over many copies.
pub(super) trait Work {
    /// Runs it by some instructions.
    ///
    /// # Safety
    /// The CPU must have them; the copies must be as for `write_many_unfenced` or `gather`.
    unsafe fn run<I: Instructions>(self);
}

/// # Safety
/// The contract of `Instructions::LOAD_PART`.
#[inline(always)]
unsafe fn load_part<I: Instructions + ?Sized>(dst: *mut u8, src: *const u8, len: usize) {
    let mut line = StackLine::new();
    // SAFETY: contract of this function.
    unsafe {
        line.load_one(I::BLOCK, src, I::LOAD_BLOCK);
        line.store(dst, src, len);
    }
}
