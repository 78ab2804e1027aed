//! Chooses how to copy, by size and mapping type. Adds a fence once the process has had mappings of several types.

pub mod mixed;

use std::ffi::OsStr;

use crate::hot::HOT;
use crate::routines::{self, Item, Shaped};
use crate::types::MappingType;

use mixed::fence_if_mixed;

/// Begins a batch of writes. After the last of them, the same thread calls [`end_batch`].
pub use crate::routines::before_write as begin_batch;
pub use crate::routines::store_unfenced;

// The functions below are inlined into the C functions, so that calls store little more than return addresses on the
// stack. Each write ends with SFENCE. The CPU executes past SFENCE, but later stores, including those to the stack,
// queue behind it. Fewer stores mean fewer stalls in bursts of small writes (docs/performance.md).

/// Copies `len` bytes to a mapping. Pushes the data out to the GPU before anything that the thread stores afterwards.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes; `dst` lies in a mapping of type `mapping_type`.
#[inline(always)]
pub unsafe fn to_mapping(mapping_type: MappingType, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        if !routines::write_word(dst, src, len) {
            routines::write(HOT.routine(mapping_type), dst, src, len);
        }
    }
    fence_if_mixed();
}

/// Does what [`to_mapping`] does, for callers that need values in registers after the call. Copies of aligned words
/// need not save these registers, because `write_small`, which makes the other small copies, is not inlined.
///
/// # Safety
/// The contract of [`to_mapping`].
#[inline(always)]
pub unsafe fn to_mapping_and_return(mapping_type: MappingType, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        if len > size_of::<u64>() {
            routines::write(HOT.routine(mapping_type), dst, src, len);
        } else if !routines::write_word(dst, src, len) {
            return write_small(mapping_type, dst, src, len);
        }
    }
    fence_if_mixed();
}

/// # Safety
/// The contract of [`to_mapping`].
#[inline(never)]
unsafe fn write_small(mapping_type: MappingType, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { to_mapping(mapping_type, dst, src, len) }
}

/// Copies `len` bytes from a mapping. The bytes are no older than the call, and no older than the bytes that earlier
/// calls of this thread have copied.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes; `src` lies in a mapping of type `mapping_type`.
#[inline(always)]
pub unsafe fn from_mapping(mapping_type: MappingType, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        if !routines::read_word(dst, src, len) {
            routines::read(HOT.routine(mapping_type), dst, src, len);
        }
    }
    fence_if_mixed();
}

/// Writes a word by one store, which is a release, and pushes it out to the GPU.
///
/// # Safety
/// A `T` of 1, 2, 4 or 8 bytes is mapped at `dst`, aligned to its size.
#[inline(always)]
pub unsafe fn store<T: Copy>(dst: *mut T, value: T) {
    begin_batch();
    // SAFETY: contract of this function.
    unsafe { store_unfenced(dst, value) };
    end_batch();
}

/// Reads a word by one load, which is an acquire. Never returns a value that the memory had only before the call.
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

/// Ends the batch that [`begin_batch`] began, and pushes its writes out to the GPU.
#[inline(always)]
pub fn end_batch() {
    routines::after_write();
    fence_if_mixed();
}

/// Copies `len` bytes to a mapping. Callers call [`begin_batch`] before it and [`end_batch`] after it.
///
/// # Safety
/// The contract of [`to_mapping`].
#[inline(always)]
pub unsafe fn write_unfenced(mapping_type: MappingType, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { routines::write_unfenced(HOT.routine(mapping_type), dst, src, len) }
}

/// Makes `count` reads from a mapping, with the fences of a single read. See [`routines::gather`].
///
/// # Safety
/// Each item's `dst` is writable for `len` bytes, and its `src` lies in a mapping of type `mapping_type`. All items
/// have the size and the alignment that `shape` returns. For each number, `item` returns the same item each time.
#[inline(always)]
pub unsafe fn gather(
    mapping_type: MappingType,
    shape: impl Shaped,
    count: usize,
    item: impl Fn(usize) -> Item + Copy,
) -> bool {
    // SAFETY: contract of this function.
    let gathered = unsafe { routines::gather(HOT.routine(mapping_type), shape, count, item) };
    fence_if_mixed();
    gathered
}

/// Waits until the thread's earlier writes have arrived at the GPU. For that, the function makes a load and waits for
/// its result, because a load over PCIe does not pass earlier writes.
///
/// # Safety
/// `src` is mapped.
pub unsafe fn flush(src: *const u8) {
    // SAFETY: contract of this function.
    unsafe { routines::load(src) };
    // The load may not have returned yet. The fence holds back later loads and stores until it has returned.
    routines::full_fence();
}

/// Makes `count` writes to a mapping, between [`begin_batch`] and [`end_batch`]. See [`routines::write_many_unfenced`].
///
/// # Safety
/// Each item's `src` is readable for `len` bytes, and its `dst` lies in a mapping of type `mapping_type`. All items
/// have the size and the alignment that `shape` returns.
#[inline(always)]
pub unsafe fn write_many_unfenced(
    mapping_type: MappingType,
    shape: impl Shaped,
    count: usize,
    item: impl Fn(usize) -> Item + Copy,
) -> bool {
    // SAFETY: contract of this function.
    unsafe { routines::write_many_unfenced(HOT.routine(mapping_type), shape, count, item) }
}

/// Makes copies through write-combining mappings use the routine of this name, or the best one if `request` is `None`
/// or the CPU cannot run that routine. Returns the name of the routine that copies will use.
pub fn select_routine(request: Option<&OsStr>) -> &'static str {
    let routine = routines::find(request);
    if HOT.routine(MappingType::WriteCombining).name() != routine.name() {
        HOT.set_routine(routine);
        log::debug!("copy routine for write-combined mappings: {}", routine.name());
    }
    routine.name()
}
