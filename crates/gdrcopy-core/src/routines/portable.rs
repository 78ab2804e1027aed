//! Copies by plain loads and stores of at most 8 bytes, which run on every CPU and suit every kind of memory.

use super::instructions::Instructions;
use super::routine::{BlockFn, CopyFn, Routine};
use super::{loads, stores};

pub(super) const ROUTINE: Routine = Routine { name: "portable", write, write_one: write, read };

/// # Safety
/// The contract of [`super::write`].
pub(super) unsafe fn write(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { stores::by_line::<u64, u64>(dst, src, len, stores::line::<u64>) }
}

/// # Safety
/// The contract of [`super::read`].
pub(super) unsafe fn read(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { loads::by_line::<8>(dst, src, len, loads::word::<u64>) }
}

/// The portable routine. Plain loads of write-combining or device memory are made one by one, each in a round trip.
pub(super) struct Portable;

impl Instructions for Portable {
    const BLOCK: usize = size_of::<u64>();
    const LOAD_BLOCK: BlockFn = loads::word::<u64>;
    const LOADS_OVERLAP: bool = false;
    const STORE_LINE: BlockFn = stores::line::<u64>;
    const WRITE: CopyFn = write;
    const READ: CopyFn = read;
}
