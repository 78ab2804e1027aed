//! Cuts the reads of all copy routines into loads from device memory.
//!
//! Each load is an aligned block that has bytes of the range, and stays inside the cache lines that the range touches.
//! The partial lines at both ends are loaded to the stack. Their wanted bytes are copied from there after all loads.

use core::mem::MaybeUninit;
use core::ptr;

use super::access;
use super::routine::{BlockFn, LINE};

/// The functions that copy 1, 2, 4 and 8 bytes by one load each.
pub(super) const WORDS: [BlockFn; 4] = [word::<u8>, word::<u16>, word::<u32>, word::<u64>];

/// Copies a `T` by one load that the compiler neither splits, merges nor drops.
///
/// # Safety
/// `src` must be readable and `dst` writable for one `T`, and `src` aligned to its size.
#[inline(always)]
pub(super) unsafe fn word<T>(dst: *mut u8, src: *const u8) {
    debug_assert!(src.cast::<T>().is_aligned());
    // SAFETY: a `T` is readable at `src`, which is aligned, and writable at `dst`: contract of this function.
    unsafe { dst.cast::<T>().write_unaligned(access::load(src.cast::<T>())) }
}

/// Copies by loads of aligned blocks of `BLOCK` bytes each. A cache line is a whole number of blocks.
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
        head_line.load(BLOCK, src, head, copy_block);
        for line in lines.clone().step_by(LINE) {
            // The compiler unrolls this loop, so that few instructions come between the loads.
            for at in (0..LINE).step_by(BLOCK) {
                copy_block(dst.add(line + at), src.add(line + at));
            }
        }
        tail_line.load(BLOCK, src.add(lines.end), tail, copy_block);

        head_line.store(dst, src, head);
        tail_line.store(dst.add(lines.end), src.add(lines.end), tail);
    }
}

/// A buffer on the stack for a cache line of device memory of which a read needs only a part.
#[repr(align(64))]
pub(super) struct StackLine(MaybeUninit<[u8; LINE]>);

impl StackLine {
    #[inline(always)]
    pub(super) fn new() -> Self {
        StackLine(MaybeUninit::uninit())
    }

    /// Loads the `len` bytes at `src`, which are all in one cache line of device memory, by blocks of `block` bytes. In
    /// `self`, the bytes have the same offset as in that line.
    ///
    /// # Safety
    /// The contract of [`by_line`].
    #[inline(always)]
    pub(super) unsafe fn load(&mut self, block: usize, src: *const u8, len: usize, copy_block: BlockFn) {
        let offset = src.addr() % LINE;
        let device_line = src.wrapping_sub(offset);
        if len > 0 {
            for at in (offset - offset % block..offset + len).step_by(block) {
                let to = self.0.as_mut_ptr().cast::<u8>();
                // SAFETY: the block lies in the line, and `self` has room for the whole line.
                unsafe { copy_block(to.add(at), device_line.wrapping_add(at)) }
            }
        }
    }

    /// Loads the aligned block of `block` bytes around `src` into `self`, at the block's offset in its cache line.
    ///
    /// # Safety
    /// The contract of [`by_line`], for the whole block.
    #[inline(always)]
    pub(super) unsafe fn load_one(&mut self, block: usize, src: *const u8, copy_block: BlockFn) {
        let offset = src.addr() & (block - 1);
        let at = src.addr() % LINE - offset;
        // SAFETY: the block lies in a line, and `self` has room for the whole line.
        unsafe { copy_block(self.0.as_mut_ptr().cast::<u8>().add(at), src.wrapping_sub(offset)) }
    }

    /// Copies to `dst` the `N` bytes that were loaded from `src`.
    ///
    /// # Safety
    /// The bytes must have been loaded, and `dst` be writable for `N` bytes.
    #[inline(always)]
    pub(super) unsafe fn store_word<const N: usize>(&self, dst: *mut u8, src: *const u8) {
        // SAFETY: contract of this function; the bytes lie inside the line.
        unsafe { ptr::copy_nonoverlapping(self.0.as_ptr().cast::<u8>().add(src.addr() % LINE), dst, N) }
    }

    /// Copies to `dst` the `len` bytes that were loaded from `src`.
    ///
    /// # Safety
    /// The bytes must have been loaded, and `dst` be writable for `len` bytes.
    #[inline(always)]
    pub(super) unsafe fn store(&self, dst: *mut u8, src: *const u8, len: usize) {
        if len == 0 {
            return;
        }
        // SAFETY: the bytes lie inside the line, where `load` put them.
        unsafe { copy_out(dst, self.0.as_ptr().cast::<u8>().add(src.addr() % LINE), len) }
    }
}

/// Copies bytes from a buffer, where a load has put them, to `dst`. Copies up to 128 bytes without a call of memcpy.
///
/// # Safety
/// `src` must be readable and `dst` writable for `len` bytes, and the two must not overlap.
#[inline(always)]
pub(super) unsafe fn copy_out(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        if len > 128 {
            ptr::copy_nonoverlapping(src, dst, len);
        } else if len >= 64 {
            copy_ends::<64>(dst, src, len);
        } else if len >= 32 {
            copy_ends::<32>(dst, src, len);
        } else if len >= 16 {
            copy_ends::<16>(dst, src, len);
        } else if len >= 8 {
            copy_ends::<8>(dst, src, len);
        } else if len >= 4 {
            copy_ends::<4>(dst, src, len);
        } else if len >= 2 {
            copy_ends::<2>(dst, src, len);
        } else if len == 1 {
            dst.write(src.read());
        }
    }
}

/// Copies the first `N` and the last `N` bytes, which are all bytes if `len` is from `N` to 2 × `N`.
///
/// # Safety
/// The contract of [`copy_out`], and `len` must be at least `N`.
#[inline(always)]
unsafe fn copy_ends<const N: usize>(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        ptr::copy_nonoverlapping(src, dst, N);
        ptr::copy_nonoverlapping(src.add(len - N), dst.add(len - N), N);
    }
}
