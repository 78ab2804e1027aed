//! The routines that move the bytes of a copy in either direction, and the fences around them.
//!
//! A copy passes through these files from top to bottom:
//!
//! ```text
//! write_word, read_word  mod.rs        one access, for a mapping of any type
//! write, read            mod.rs        everything else
//! Routine                arch/, portable.rs    one instruction set each; select.rs finds the best one
//! write_many_unfenced, gather   many.rs    loops over many copies, by the instructions of a routine
//! Shape                  shape.rs      the size and the alignment that many copies have in common
//! by_line                stores.rs, loads.rs   cuts copies into aligned pieces, for all routines
//! ```
//!
//! This directory depends on nothing else of the crate, because `tests/cross` builds it for other CPUs.
//!
//! All routines keep these rules:
//!
//! - Device memory is only touched by naturally aligned accesses that stay inside one 64-byte cache line. But small
//!   writes of a batch on x86-64 may use unaligned stores. Device memory is never touched through a reference, because
//!   the GPU may change it at any time. Cached mappings allow any access, so they are copied by the C library's
//!   `memcpy`.
//! - A copy of 1, 2, 4 or 8 bytes that is naturally aligned on the device side is one access of that width. So callers
//!   try `write_word` and `read_word` first.
//! - A write stores every byte once and nothing outside its range. It is a release, so it comes after the thread's
//!   earlier loads and stores, and before its later stores. When it returns, nothing holds its stores back.
//! - A read is an acquire, so it comes before the thread's later loads and stores, and after its earlier reads. It
//!   returns data no older than the start of the call. It may load whole cache lines around its range. One uncached
//!   load costs a microsecond whatever its width, so loads are wide and few, and overlap.
//!
//! The module `fence` of each architecture states which instructions keep these orders, and where no instruction does.

mod access;
mod arch;
mod instructions;
mod loads;
mod many;
mod portable;
mod routine;
mod select;
mod shape;
mod stores;

pub use access::store as store_unfenced;
pub use arch::supported;
pub use many::{gather, write_many_unfenced};
pub use routine::{FIRST, Item, Routine};
pub use select::{best, find};
pub use shape::{Alike, CheckFn, Shape, Shaped};

use access::{copy_word, is_word};
use arch::fence;
pub use fence::{after_read, after_write, before_read, before_write, full as full_fence};
use routine::{MEMCPY, memcpy};

/// Copies a naturally aligned word of 1, 2, 4 or 8 bytes to a mapping of any type, by one store.
///
/// Returns false, and does nothing, if the copy is not such a word.
///
/// # Safety
/// The contract of [`write()`].
#[inline(always)]
pub unsafe fn write_word(dst: *mut u8, src: *const u8, len: usize) -> bool {
    let is_word = is_word(dst.addr(), len);
    if is_word {
        fence::before_write();
        // SAFETY: `src` is readable and `dst` writable for `len` bytes: contract of this function.
        // `dst` is aligned to `len` (`is_word`).
        unsafe { copy_word(stores::WORDS, dst, src, len) }
        fence::after_write();
    }
    is_word
}

/// Copies a naturally aligned word of 1, 2, 4 or 8 bytes from a mapping of any type, by one load.
///
/// Returns false, and does nothing, if the copy is not such a word.
///
/// # Safety
/// The contract of [`read`].
#[inline(always)]
pub unsafe fn read_word(dst: *mut u8, src: *const u8, len: usize) -> bool {
    let is_word = is_word(src.addr(), len);
    if is_word {
        fence::before_read();
        // SAFETY: `src` is readable and `dst` writable for `len` bytes: contract of this function.
        // `src` is aligned to `len` (`is_word`).
        unsafe { copy_word(loads::WORDS, dst, src, len) }
        fence::after_read();
    }
    is_word
}

/// Copies `len` bytes of host memory to a mapping, between the fences of a write.
///
/// # Safety
/// `src` must be readable and `dst` a mapping writable for `len` bytes, and the two must not overlap. The routine must
/// suit the mapping's type. The CPU must support it; [`best`], [`find`] and [`supported`] return only such routines.
#[inline(always)]
pub unsafe fn write(routine: &Routine, dst: *mut u8, src: *const u8, len: usize) {
    fence::before_write();
    // SAFETY: contract of this function.
    unsafe { (routine.write)(dst, src, len) }
    fence::after_write();
}

/// Copies `len` bytes of a mapping to host memory, between the fences of a read.
///
/// # Safety
/// `dst` must be writable for `len` bytes, and `src` a mapping readable in all the 64-byte lines
/// that its `len` bytes touch. The two must not overlap. The routine must suit the mapping's type and the CPU.
#[inline(always)]
pub unsafe fn read(routine: &Routine, dst: *mut u8, src: *const u8, len: usize) {
    fence::before_read();
    // SAFETY: contract of this function.
    unsafe { (routine.read)(dst, src, len) }
    fence::after_read();
}

/// The routine for mappings of the type `Device`. It makes naturally aligned accesses of at most 8 bytes.
pub static DEVICE: Routine = portable::ROUTINE;

/// The routine for cached mappings.
pub static CACHED: Routine = Routine { name: MEMCPY, write: memcpy, write_one: memcpy, read: memcpy };

/// Reads a word by one load, between the fences of a read.
///
/// # Safety
/// `src` must lie in a mapping, be readable for a `T` of 1, 2, 4 or 8 bytes, and be aligned to its size.
#[inline(always)]
pub unsafe fn load<T: Copy>(src: *const T) -> T {
    fence::before_read();
    // SAFETY: contract of this function.
    let value = unsafe { access::load(src) };
    fence::after_read();
    value
}

/// Copies `len` bytes of host memory to a mapping. Callers call [`before_write`] before and [`after_write`] after.
///
/// # Safety
/// The contract of [`write()`].
#[inline(always)]
pub unsafe fn write_unfenced(routine: &Routine, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { stores::word_or(routine.write_one, dst, src, len) }
}
