//! Decides how a copy is made, as one word or not, for which mapping type, with which final fence. `routines` then moves
//! the bytes.

pub mod mixed;

use std::ffi::OsStr;

use crate::hot::HOT;
use crate::routines::{self, Item, Routine};
use crate::types::MappingType;

use mixed::fence_if_mixed;

// Most copies go through a write-combining mapping. They are inlined into the C functions, which then store little but
// return addresses. The CPU executes past SFENCE, but later stores, including those to the stack, queue behind it. Fewer
// of them mean fewer stalls in bursts of small writes (docs/performance.md).

/// Copies `len` bytes to a mapping. Pushes the data out to the GPU before anything that the thread stores
/// afterwards.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes; `dst` lies in a mapping of type `mapping_type`.
#[inline(always)]
pub unsafe fn to_mapping(mapping_type: MappingType, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        if routines::write_word(dst, src, len) {
            fence_if_mixed();
        } else if mapping_type == MappingType::WriteCombining {
            routines::write_wc(HOT.routine(), dst, src, len);
            fence_if_mixed();
        } else {
            write_otherwise(mapping_type, dst, src, len);
        }
    }
}

/// Copies `len` bytes from a mapping; they are no older than the call, and no older than what earlier
/// calls of this thread returned.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes; `src` lies in a mapping of type `mapping_type`.
#[inline(always)]
pub unsafe fn from_mapping(mapping_type: MappingType, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        if routines::read_word(dst, src, len) {
            fence_if_mixed();
        } else if mapping_type == MappingType::WriteCombining {
            routines::read_wc(HOT.routine(), dst, src, len);
            fence_if_mixed();
        } else {
            read_otherwise(mapping_type, dst, src, len);
        }
    }
}

/// Writes of more than a word through a mapping that is not write-combining.
///
/// # Safety
/// The contract of [`to_mapping`].
#[inline(never)]
unsafe fn write_otherwise(mapping_type: MappingType, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        match mapping_type {
            MappingType::Caching => routines::write_cached(dst, src, len),
            _ => routines::write_device(dst, src, len),
        }
    }
    fence_if_mixed();
}

/// Reads of more than a word through a mapping that is not write-combining.
///
/// # Safety
/// The contract of [`from_mapping`].
#[inline(never)]
unsafe fn read_otherwise(mapping_type: MappingType, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        match mapping_type {
            MappingType::Caching => routines::read_cached(dst, src, len),
            _ => routines::read_device(dst, src, len),
        }
    }
    fence_if_mixed();
}

/// Writes a word by one store. A release, and pushed out.
///
/// # Safety
/// A `T` of 1, 2, 4 or 8 bytes is mapped at `dst`, aligned to its size.
#[inline(always)]
pub unsafe fn store<T: Copy>(dst: *mut T, value: T) {
    // SAFETY: contract of this function.
    unsafe { routines::store(dst, value) };
    fence_if_mixed();
}

/// Reads a word by one load. An acquire, and fresh.
///
/// # Safety
/// The contract of [`store`].
#[inline(always)]
pub unsafe fn load<T: Copy>(src: *const T) -> T {
    // SAFETY: contract of this function.
    let value = unsafe { routines::load(src) };
    fence_if_mixed();
    value
}

/// Comes before the writes of a batch, `end_batch` after them, in the same thread.
#[inline(always)]
pub fn begin_batch() {
    routines::before_write();
}

/// Pushes out the writes of a batch.
#[inline(always)]
pub fn end_batch() {
    routines::after_write();
    fence_if_mixed();
}

/// Copies `len` bytes to a mapping, as a part of a batch.
///
/// # Safety
/// The contract of [`to_mapping`], for a mapping that is not cached.
#[inline(always)]
pub unsafe fn write_unfenced(kind: MappingType, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { routines::write_unfenced(routine_for(kind), dst, src, len) }
}

/// Writes a word by one store, as a part of a batch.
///
/// # Safety
/// The contract of [`store`].
#[inline(always)]
pub unsafe fn store_unfenced<T: Copy>(dst: *mut T, value: T) {
    // SAFETY: contract of this function.
    unsafe { routines::store_unfenced(dst, value) }
}

/// Copies `count` items from a mapping, between the fences of one read. See [`routines::gather`].
///
/// # Safety
/// Each item's `dst` is writable for `len` bytes, and its `src` in a mapping of type `kind`, which is not cached. `item`
/// returns the same `src` and `len` each time.
#[inline(always)]
pub unsafe fn gather(kind: MappingType, count: usize, item: impl FnMut(usize) -> Item) {
    // SAFETY: contract of this function.
    unsafe { routines::gather(routine_for(kind), count, item) };
    fence_if_mixed();
}

/// Copies words from a mapping to `values`, between the fences of one read. See [`routines::gather_words`].
///
/// # Safety
/// The words are naturally aligned ones of 1, 2, 4 or 8 bytes, in mappings of type `kind`, which is not cached.
/// `values` is writable for their number.
#[inline(always)]
pub unsafe fn gather_words<T: Copy>(kind: MappingType, words: &[*const T], values: *mut T) {
    // SAFETY: contract of this function.
    unsafe { routines::gather_words(routine_for(kind), words, values) };
    fence_if_mixed();
}

/// Waits until the thread's earlier writes have arrived at the GPU, because a load through PCIe does not pass them.
///
/// # Safety
/// `src` is mapped.
pub unsafe fn flush(src: *const u8) {
    // SAFETY: contract of this function.
    unsafe { routines::load(src) };
    // The load may be under way still.
    routines::full_fence();
}

/// Makes writes to a mapping of any type, from `src` to `dst` of each item, as a part of a batch.
///
/// # Safety
/// Each item's `src` is readable for `len` bytes, and its `dst` in a mapping of type `kind`.
#[inline(always)]
pub unsafe fn write_many_unfenced(kind: MappingType, items: impl Iterator<Item = Item>) {
    let routine = routine_for_any(kind);
    for Item { dst, src, len } in items {
        // SAFETY: contract of this function.
        unsafe { routines::write_unfenced(routine, dst, src, len) };
    }
}

/// [`gather`] for a mapping of any type.
///
/// # Safety
/// The contract of [`gather`].
#[inline(always)]
pub unsafe fn read_many(kind: MappingType, count: usize, item: impl FnMut(usize) -> Item) {
    // SAFETY: contract of this function.
    unsafe { routines::gather(routine_for_any(kind), count, item) };
    fence_if_mixed();
}

/// The routine for mappings of a type.
#[inline(always)]
fn routine_for_any(kind: MappingType) -> &'static Routine {
    match kind {
        MappingType::Caching => routines::for_cached_memory(),
        kind => routine_for(kind),
    }
}

/// The routine for mappings of a type other than cached.
#[inline(always)]
fn routine_for(kind: MappingType) -> &'static Routine {
    match kind {
        MappingType::Device => routines::for_device_memory(),
        _ => HOT.routine(),
    }
}

/// Makes copies use the routine of this name; the best one if there is no request or the CPU does not support it.
/// Returns the name of the one that they use.
pub fn select_routine(request: Option<&OsStr>) -> &'static str {
    let routine = routines::find(request);
    if HOT.routine().name() != routine.name() {
        HOT.set_routine(routine);
        log::debug!("copy routine for write-combined mappings: {}", routine.name());
    }
    routine.name()
}
