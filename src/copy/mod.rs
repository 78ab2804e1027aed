//! Copying between host memory and mapped GPU memory.
//!
//! A copy runs down through these files in one direction:
//!
//! ```text
//! write_wc, read_wc, …   mod.rs        a function for each mapping type and direction
//! write, read            mod.rs        what every copy does: single accesses, and the fence
//! selected               dispatch.rs   which kernel this CPU gets, chosen once
//! Kernel                 x86_64/, aarch64/, powerpc64.rs, portable.rs   one instruction set each
//! by_line                stores.rs, loads.rs   the cut into aligned pieces that kernels share
//! ```
//!
//! The rules, whatever the kernel:
//!
//! - Device memory is only touched by naturally aligned accesses that stay inside one 64-byte
//!   line, and never through a reference: the GPU may change it at any time. Cached mappings take
//!   any access, and so the C library's `memcpy`.
//! - 1, 2, 4 and 8 bytes, naturally aligned on the device side, are one access of that width.
//! - A write stores every byte once and nothing outside its range. It is pushed out on return, so
//!   that a flag written by a second call arrives after the payload of the first.
//! - A read returns data no older than the start of the call, and comes after every read of
//!   earlier calls of the thread. It may load whole lines around its range: one uncached load costs
//!   a microsecond whatever its width, so loads are wide and few, and overlap.

mod dispatch;
mod kernel;
mod loads;
mod portable;
mod stores;

// Each machine brings `KERNELS`, `Cpu` and `fence`. Miri knows no inline assembly.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[path = "aarch64/mod.rs"]
mod machine;
#[cfg(all(target_arch = "powerpc64", not(miri)))]
#[path = "powerpc64.rs"]
mod machine;
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[path = "x86_64/mod.rs"]
mod machine;
#[cfg(any(
    miri,
    not(any(
        target_arch = "aarch64",
        target_arch = "powerpc64",
        target_arch = "x86_64"
    ))
))]
#[path = "generic.rs"]
mod machine;

pub use dispatch::{isa_name, isa_refused, kernels};
pub use kernel::Kernel;

use core::ptr;

use machine::fence;

/// Bytes of one cache line, the largest unit that crosses PCIe undivided.
const LINE: usize = 64;

/// Copies a naturally aligned word of 1, 2, 4 or 8 bytes to a mapping of any type, by one store.
///
/// Returns false, with nothing done, if the copy is no such word.
///
/// # Safety
/// As for [`write_wc`].
#[inline(always)]
pub unsafe fn write_word(dst: *mut u8, src: *const u8, len: usize) -> bool {
    let is_word = is_word(dst.addr(), len);
    if is_word {
        // SAFETY: the caller vouches for the ranges, and `dst` is aligned to `len`.
        unsafe { stores::of_width(dst, src, len) }
        fence::after_write();
    }
    is_word
}

/// Copies a naturally aligned word of 1, 2, 4 or 8 bytes of a mapping of any type, by one load.
///
/// Returns false, with nothing done, if the copy is no such word.
///
/// # Safety
/// As for [`read_wc`].
#[inline(always)]
pub unsafe fn read_word(dst: *mut u8, src: *const u8, len: usize) -> bool {
    let is_word = is_word(src.addr(), len);
    if is_word {
        fence::before_read();
        // SAFETY: the caller vouches for the ranges, and `src` is aligned to `len`.
        unsafe { loads::of_width(dst, src, len) }
    }
    is_word
}

/// Whether `len` bytes at `addr` are one naturally aligned word of 1, 2, 4 or 8 bytes.
#[inline(always)]
fn is_word(addr: usize, len: usize) -> bool {
    let low = len.wrapping_sub(1);
    low < 8 && (addr | len) & low == 0
}

/// Copies `len` bytes of host memory to a write-combining mapping.
///
/// # Safety
/// `src` must be readable and `dst` a mapping writable for `len` bytes, and the two must not
/// overlap.
#[inline(always)]
pub unsafe fn write_wc(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller vouches for the ranges, the selection for the CPU.
    unsafe {
        write(dst, src, len, || {
            (dispatch::selected().write)(dst, src, len)
        })
    }
}

/// Copies `len` bytes of a write-combining mapping to host memory.
///
/// # Safety
/// `dst` must be writable for `len` bytes, and `src` a mapping readable in all the 64-byte lines
/// that its `len` bytes touch. The two must not overlap.
#[inline(always)]
pub unsafe fn read_wc(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller vouches for the ranges, the selection for the CPU.
    unsafe { read(dst, src, len, || (dispatch::selected().read)(dst, src, len)) }
}

/// Copies `len` bytes of host memory to a cached mapping.
///
/// # Safety
/// As for [`write_wc`].
#[inline]
pub unsafe fn write_cached(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller vouches for the ranges.
    unsafe { write(dst, src, len, || ptr::copy_nonoverlapping(src, dst, len)) }
}

/// Copies `len` bytes of a cached mapping to host memory.
///
/// # Safety
/// As for [`read_wc`].
#[inline]
pub unsafe fn read_cached(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller vouches for the ranges.
    unsafe { read(dst, src, len, || ptr::copy_nonoverlapping(src, dst, len)) }
}

/// Copies `len` bytes of host memory to a mapping of device memory type, by naturally aligned
/// stores of at most 8 bytes.
///
/// # Safety
/// As for [`write_wc`].
#[inline]
pub unsafe fn write_device(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller vouches for the ranges.
    unsafe { write(dst, src, len, || portable::write(dst, src, len)) }
}

/// Copies `len` bytes of a mapping of device memory type to host memory, by naturally aligned
/// loads of at most 8 bytes.
///
/// # Safety
/// As for [`read_wc`].
#[inline]
pub unsafe fn read_device(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller vouches for the ranges.
    unsafe { read(dst, src, len, || portable::read(dst, src, len)) }
}

/// Orders every memory access before it against every one after it, whatever the mapping types:
/// what a copy owes while mappings of several types are in use.
#[inline]
pub fn full_fence() {
    fence::full();
}

/// What every write does: a single store if that is the copy, else `copy_all`; the fence behind.
///
/// # Safety
/// As for [`write_wc`].
#[inline(always)]
unsafe fn write(dst: *mut u8, src: *const u8, len: usize, copy_all: impl FnOnce()) {
    // SAFETY: the caller vouches for the ranges.
    if unsafe { !write_word(dst, src, len) } {
        copy_all();
        fence::after_write();
    }
}

/// What every read does: the fence in front; a single load if that is the copy, else `copy_all`.
///
/// # Safety
/// As for [`read_wc`].
#[inline(always)]
unsafe fn read(dst: *mut u8, src: *const u8, len: usize, copy_all: impl FnOnce()) {
    // SAFETY: the caller vouches for the ranges.
    if unsafe { !read_word(dst, src, len) } {
        fence::before_read();
        copy_all();
    }
}
