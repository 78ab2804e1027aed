//! Plain loads and stores of at most 8 bytes. They run on every CPU, and suit memory that takes
//! no wider access.

use super::routine::{Blocks, Routine};
use super::{loads, stores};

pub(super) const ROUTINE: Routine = Routine { name: "portable", write, read, blocks: Some(BLOCKS) };

pub(super) const BLOCKS: Blocks = Blocks { size: size_of::<u64>(), load: load_blocks };

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

/// Plain loads of write-combining and device memory do not overlap, so each takes a round trip.
///
/// # Safety
/// The contract of `LoadBlocksFn`.
unsafe fn load_blocks(buffer: *mut u8, blocks: &[*const u8]) {
    // SAFETY: contract of this function.
    unsafe { loads::listed::<8, 4>(buffer, blocks, loads::word::<u64>) }
}
