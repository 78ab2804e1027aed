//! Cuts the writes of all copy routines into stores to device memory.
//!
//! A write begins with narrow stores and goes on to wider ones (`climb`), until it is aligned to the routine's widest
//! store. The widest stores copy most of the bytes, and narrower stores copy the last ones (`descend`). Each byte is
//! stored once. All stores are naturally aligned, except in small writes of a batch (`unaligned`).

use super::access::{self, copy_word, is_word};
use super::routine::{BlockFn, CopyFn, LINE};

/// The functions that copy 1, 2, 4 and 8 bytes by one store each.
pub(super) const WORDS: [BlockFn; 4] = [word::<u8>, word::<u16>, word::<u32>, word::<u64>];

/// Copies a naturally aligned word of 1, 2, 4 or 8 bytes by one store, and everything else by `write`.
///
/// # Safety
/// The contract of [`super::write`]. The CPU must have the instructions of the function `write`.
#[inline(always)]
pub(super) unsafe fn word_or(write: CopyFn, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function; a word is aligned to `len` (`is_word`).
    unsafe {
        if is_word(dst.addr(), len) {
            copy_word(WORDS, dst, src, len);
        } else {
            write(dst, src, len);
        }
    }
}

/// Copies a `T` by one store that the compiler neither splits, merges nor drops.
///
/// # Safety
/// `src` must be readable and `dst` writable for one `T`, and `dst` aligned to its size.
#[inline(always)]
pub(super) unsafe fn word<T>(dst: *mut u8, src: *const u8) {
    debug_assert!(dst.cast::<T>().is_aligned());
    // SAFETY: a `T` is readable at `src` and writable at `dst`, which is aligned: contract of this function.
    unsafe { access::store(dst.cast::<T>(), src.cast::<T>().read_unaligned()) }
}

/// Copies a cache line by stores of the size of a `W`.
///
/// # Safety
/// The contract of [`block`].
#[inline(always)]
pub(super) unsafe fn line<W>(dst: *mut u8, src: *const u8) {
    // SAFETY: contract of this function.
    unsafe { block::<W, LINE>(dst, src) }
}

/// Copies `N` bytes by stores of the size of a `W`.
///
/// # Safety
/// `src` must be readable and `dst` writable for `N` bytes, and `dst` aligned to `W`.
#[inline(always)]
pub(super) unsafe fn block<W, const N: usize>(dst: *mut u8, src: *const u8) {
    for at in (0..N).step_by(size_of::<W>()) {
        // SAFETY: the word lies in the `N` bytes at `src` and `dst`.
        unsafe { word::<W>(dst.add(at), src.add(at)) }
    }
}

/// Copies whole lines by `store_line`, and the bytes before and after them by stores of 1, 2, 4 and 8 bytes, an `H` and
/// a `W`, but none wider than a `W`. The size of `H` is between 8 bytes and that of `W`; if there is none, `H` is `W`.
///
/// # Safety
/// The contract of [`super::write`]. `store_line` must copy a line.
#[inline(always)]
pub(super) unsafe fn by_line<H, W>(dst: *mut u8, src: *const u8, len: usize, store_line: BlockFn) {
    if len == LINE && dst.addr() & (LINE - 1) == 0 {
        // SAFETY: contract of this function.
        return unsafe { store_line(dst, src) };
    }
    let mut rest = Rest { dst, src, len };
    // SAFETY: `len` bytes are readable at `src` and writable at `dst`: contract of this function.
    unsafe {
        if rest.dst.addr() & (LINE - 1) != 0 {
            rest.climb::<H, W>(LINE);
        }
        let lines = rest.len - rest.len % LINE;
        for at in (0..lines).step_by(LINE) {
            store_line(rest.dst.add(at), rest.src.add(at));
        }
        rest.advance(lines);
        if rest.len > 0 {
            rest.descend::<H, W>();
        }
    }
}

/// Makes one write of a batch: up to two cache lines by [`unaligned`], more by `write`. For `H`, see [`by_line`].
///
/// # Safety
/// The contract of [`super::write`]. The CPU must have the instructions of the function `write`.
#[cfg(target_arch = "x86_64")] // Other architectures write batches by aligned stores.
#[inline(always)]
pub(super) unsafe fn one_of_many<H, W>(write: CopyFn, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        match len {
            LINE => unaligned::<H, W>(dst, src, LINE), // Frequent: with a constant size, `unaligned` needs no tests.
            0..=TWO_LINES => unaligned::<H, W>(dst, src, len),
            _ => write(dst, src, len),
        }
    }
}

#[cfg(target_arch = "x86_64")]
const TWO_LINES: usize = 2 * LINE;

/// Copies at most two cache lines by stores no wider than a `W`, aligned or not, the widest first. For `H`, see
/// [`by_line`]. The CPU splits a store that straddles two cache lines. This takes less time than two stores.
///
/// # Safety
/// The contract of [`super::write`].
#[cfg(target_arch = "x86_64")] // Other architectures write batches by aligned stores.
#[inline(always)]
pub(super) unsafe fn unaligned<H, W>(dst: *mut u8, src: *const u8, len: usize) {
    let mut rest = Rest { dst, src, len };
    // SAFETY: contract of this function; each step copies only bytes that are left.
    unsafe {
        for _ in 0..TWO_LINES / size_of::<W>() {
            rest.store_unaligned::<W>();
        }
        if size_of::<H>() < size_of::<W>() {
            rest.store_unaligned::<H>();
        }
        rest.store_unaligned::<u64>();
        rest.store_unaligned::<u32>();
        rest.store_unaligned::<u16>();
        rest.store_unaligned::<u8>();
    }
}

/// The part of a write that is still to be done.
struct Rest {
    dst: *mut u8,
    src: *const u8,
    len: usize,
}

impl Rest {
    /// Stores words smaller than `W`, then `W`s, until `dst` is aligned to `boundary` or less than a `W` is left.
    #[inline(always)]
    unsafe fn climb<H, W>(&mut self, boundary: usize) {
        // SAFETY: each step copies only bytes that are left. Small words align `dst` to `W`, or leave less than one.
        unsafe {
            self.climb_over::<u8, W>();
            self.climb_over::<u16, W>();
            self.climb_over::<u32, W>();
            self.climb_over::<u64, W>();
            self.climb_over::<H, W>();
            while self.dst.addr() & (boundary - 1) != 0 && self.len >= size_of::<W>() {
                self.store::<W>();
            }
        }
    }

    /// Stores a `T` if it is smaller than `W`, at least a `T` is left, and `dst` is not aligned to twice its size.
    #[inline(always)]
    unsafe fn climb_over<T, W>(&mut self) {
        let size = size_of::<T>();
        if size < size_of::<W>() && self.dst.addr() & size != 0 && self.len >= size {
            // SAFETY: at least a `T` is left, so enough was left for the smaller words that `climb` has stored to
            // align `dst` to `T`.
            unsafe { self.store::<T>() }
        }
    }

    /// Stores all bytes that are left, by `W`s and then smaller words. `dst` must be aligned to `W`. If less than a `W`
    /// is left, alignment to the next longer word is enough, such as to 4 bytes if 3 are left. `climb` ensures this
    /// alignment.
    #[inline(always)]
    unsafe fn descend<H, W>(&mut self) {
        // SAFETY: each step copies only bytes that are left, and keeps `dst` aligned to the smaller words.
        unsafe {
            while self.len >= size_of::<W>() {
                self.store::<W>();
            }
            self.descend_by::<H, W>();
            self.descend_by::<u64, W>();
            self.descend_by::<u32, W>();
            self.descend_by::<u16, W>();
            self.descend_by::<u8, W>();
        }
    }

    /// Stores a `T` if a `T` is smaller than a `W` and at least one `T` is left to store.
    #[inline(always)]
    unsafe fn descend_by<T, W>(&mut self) {
        if size_of::<T>() < size_of::<W>() && self.len >= size_of::<T>() {
            // SAFETY: at least one `T` is left to store, and `descend` keeps `dst` aligned to a `T`.
            unsafe { self.store::<T>() }
        }
    }

    /// Stores a `T`, at any alignment, if at least a `T` is left to store.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn store_unaligned<T>(&mut self) {
        if self.len >= size_of::<T>() {
            // SAFETY: at least a `T` is left to store.
            unsafe {
                self.dst.cast::<T>().write_unaligned(self.src.cast::<T>().read_unaligned());
                self.advance(size_of::<T>());
            }
        }
    }

    #[inline(always)]
    unsafe fn store<T>(&mut self) {
        // SAFETY: callers have checked that at least a `T` is left to store, and that `dst` is aligned to it.
        unsafe {
            word::<T>(self.dst, self.src);
            self.advance(size_of::<T>());
        }
    }

    #[inline(always)]
    unsafe fn advance(&mut self, by: usize) {
        // SAFETY: callers have just copied these `by` bytes, so both pointers stay in their ranges.
        unsafe {
            self.dst = self.dst.add(by);
            self.src = self.src.add(by);
        }
        self.len -= by;
    }
}
