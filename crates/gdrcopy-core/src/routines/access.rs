//! Accesses that the compiler neither splits, merges nor drops.
//!
//! Words of up to 8 bytes are accessed by relaxed atomics, because other threads may access the same word at once. With
//! volatile accesses, that would be a data race. Wider accesses are volatile, because Rust has no wider atomics. The
//! accesses have no order by themselves: callers execute the CPU's fences.

use core::mem::transmute_copy;
use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::routine::BlockFn;

/// # Safety
/// `src` must be readable for a `T` and aligned to its size. Any content must be a valid `T`.
#[inline(always)]
pub(super) unsafe fn load<T>(src: *const T) -> T {
    macro_rules! word {
        ($atomic:ty) => {
            // SAFETY: contract of this function; `T` and the atomic type have the same size.
            unsafe {
                let word = <$atomic>::from_ptr(src.cast_mut().cast()).load(Ordering::Relaxed);
                transmute_copy(&word)
            }
        };
    }
    match size_of::<T>() {
        1 => word!(AtomicU8),
        2 => word!(AtomicU16),
        4 => word!(AtomicU32),
        8 => word!(AtomicU64),
        // SAFETY: contract of this function.
        _ => unsafe { ptr::read_volatile(src) },
    }
}

/// Writes a word by one store, which is allowed for mappings of any type. Callers call
/// [`before_write`](super::before_write) before it and [`after_write`](super::after_write) after it.
///
/// # Safety
/// `dst` must be writable for a `T` and aligned to its size. `T` must have no padding.
#[inline(always)]
pub unsafe fn store<T>(dst: *mut T, value: T) {
    macro_rules! word {
        ($atomic:ty) => {
            // SAFETY: contract of this function; `T` and the atomic type have the same size.
            unsafe {
                let word = transmute_copy(&value);
                <$atomic>::from_ptr(dst.cast()).store(word, Ordering::Relaxed);
            }
        };
    }
    match size_of::<T>() {
        1 => word!(AtomicU8),
        2 => word!(AtomicU16),
        4 => word!(AtomicU32),
        8 => word!(AtomicU64),
        // SAFETY: contract of this function.
        _ => unsafe { ptr::write_volatile(dst, value) },
    }
}

/// Returns whether `len` bytes at `addr` are one naturally aligned word of 1, 2, 4 or 8 bytes.
#[inline(always)]
pub(super) fn is_word(addr: usize, len: usize) -> bool {
    let low = len.wrapping_sub(1);
    low < 8 && (addr | len) & low == 0
}

/// Copies a word of `len` bytes, which is 1, 2, 4 or 8, by the function for that width.
///
/// # Safety
/// The contract of that function.
#[inline(always)]
pub(super) unsafe fn copy_word(by_width: [BlockFn; 4], dst: *mut u8, src: *const u8, len: usize) {
    let [one, two, four, eight] = by_width;
    // SAFETY: contract of this function.
    unsafe {
        // 4 and 8 bytes are tested first, because most flags that programs poll have these sizes.
        if len & 4 != 0 {
            four(dst, src);
        } else if len & 8 != 0 {
            eight(dst, src);
        } else if len & 2 != 0 {
            two(dst, src);
        } else {
            one(dst, src);
        }
    }
}
