//! Loads from device memory, into which every copy routine cuts a read.
//!
//! Each load is an aligned block that covers bytes of the range, and stays inside the lines which
//! the range touches. The part lines at both ends go through a line on the stack. Their loads are issued along with
//! those of the whole lines, and only then are the wanted bytes taken out.

use core::mem::MaybeUninit;
use core::ptr;

use super::access;
use super::routine::{BlockFn, LINE};

/// One load of `len` bytes, which is 1, 2, 4 or 8.
///
/// # Safety
/// The contract of [`super::read`], and `src` must be aligned to `len`.
#[inline(always)]
pub(super) unsafe fn of_width(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: `len` bytes are readable at `src`, which is aligned to `len`, and writable at `dst`: contract of
    // this function.
    unsafe {
        // 4 and 8 bytes come first, because flags that programs poll have these sizes.
        if len & 4 != 0 {
            word::<u32>(dst, src);
        } else if len & 8 != 0 {
            word::<u64>(dst, src);
        } else if len & 2 != 0 {
            word::<u16>(dst, src);
        } else {
            word::<u8>(dst, src);
        }
    }
}

/// One load of a `T` that the compiler neither splits, merges nor drops.
///
/// # Safety
/// `src` must be readable and `dst` writable for one `T`, and `src` aligned to its size.
#[inline(always)]
pub(super) unsafe fn word<T>(dst: *mut u8, src: *const u8) {
    debug_assert!(src.cast::<T>().is_aligned());
    // SAFETY: a `T` is readable at `src`, which is aligned, and writable at `dst`: contract of this function.
    unsafe { dst.cast::<T>().write_unaligned(access::load(src.cast::<T>())) }
}

/// Copies by loads of aligned blocks of `BLOCK` bytes, a divisor of the line.
///
/// # Safety
/// The contract of [`super::read`]. `copy_block` must copy `BLOCK` bytes.
#[inline(always)]
pub(super) unsafe fn by_line<const BLOCK: usize>(dst: *mut u8, src: *const u8, len: usize, copy_block: BlockFn) {
    let head = (src.addr().wrapping_neg() % LINE).min(len);
    let tail = (len - head) % LINE;
    let lines = head..len - tail;
    let mut head_line = StackLine::new();
    let mut tail_line = StackLine::new();

    // SAFETY: head, lines and tail make up the `len` bytes of this function's contract.
    unsafe {
        head_line.load::<BLOCK>(src, head, copy_block);
        for at in lines.clone().step_by(BLOCK) {
            copy_block(dst.add(at), src.add(at));
        }
        tail_line.load::<BLOCK>(src.add(lines.end), tail, copy_block);

        head_line.store(dst, src, head);
        tail_line.store(dst.add(lines.end), src.add(lines.end), tail);
    }
}

/// Loads blocks of `BLOCK` bytes to places of `buffer` one after the other, `UNROLLED` in a turn of the loop. In each
/// the first blocks of lines come first. On the measured CPU, a load of a line that another load is fetching just now
/// takes its own round trip. That is less frequent if other loads are between the two.
///
/// # Safety
/// The contract of `LoadBlocksFn`. `copy_block` must copy `BLOCK` bytes.
#[inline(always)]
pub(super) unsafe fn listed<const BLOCK: usize, const UNROLLED: usize>(
    buffer: *mut u8,
    blocks: &[*const u8],
    copy_block: BlockFn,
) {
    let start = |address: *const u8| address.map_addr(|address| address & !(BLOCK - 1));
    // Not as_chunks, because tests/cross compiles this with Rust 1.85 for POWER.
    let turns = blocks.chunks_exact(UNROLLED);
    let (count, rest) = (turns.len(), turns.remainder());
    // SAFETY: contract of this function.
    unsafe {
        for (turn, blocks) in turns.enumerate() {
            let buffer = buffer.add(turn * UNROLLED * BLOCK);
            for part in 0..LINE / BLOCK {
                for n in (part..UNROLLED).step_by(LINE / BLOCK) {
                    copy_block(buffer.add(n * BLOCK), start(blocks[n]));
                }
            }
        }
        let buffer = buffer.add(count * UNROLLED * BLOCK);
        for (n, &block) in rest.iter().enumerate() {
            copy_block(buffer.add(n * BLOCK), start(block));
        }
    }
}

/// Room for a line of device memory that is wanted in part.
#[repr(align(64))]
pub(super) struct StackLine(MaybeUninit<[u8; LINE]>);

impl StackLine {
    #[inline(always)]
    pub(super) fn new() -> Self {
        StackLine(MaybeUninit::uninit())
    }

    /// Loads the blocks that hold the `len` bytes at `src`, all of one line, to their places.
    ///
    /// # Safety
    /// The contract of [`by_line`].
    #[inline(always)]
    pub(super) unsafe fn load<const BLOCK: usize>(&mut self, src: *const u8, len: usize, copy_block: BlockFn) {
        let offset = src.addr() % LINE;
        let first = offset - offset % BLOCK;
        let device_line = src.wrapping_sub(offset);
        if len > 0 {
            for at in (first..offset + len).step_by(BLOCK) {
                let to = self.0.as_mut_ptr().cast::<u8>();
                // SAFETY: a block of this line, which has as much room on the stack.
                unsafe { copy_block(to.add(at), device_line.wrapping_add(at)) }
            }
        }
    }

    /// Stores the bytes that were loaded from the `len` bytes at `src`.
    ///
    /// # Safety
    /// They must have been loaded, and `dst` be writable for `len` bytes.
    #[inline(always)]
    pub(super) unsafe fn store(&self, dst: *mut u8, src: *const u8, len: usize) {
        if len > 0 {
            // SAFETY: the bytes lie inside the line, where `load` put them.
            unsafe {
                let from = self.0.as_ptr().cast::<u8>().add(src.addr() % LINE);
                ptr::copy_nonoverlapping(from, dst, len);
            }
        }
    }
}
