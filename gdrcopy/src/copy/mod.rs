//! One copy, with all its decisions: is it one word, which type has the mapping, is it large enough for
//! several threads, are mappings of several types live. `routines` does the rest.

#[doc(hidden)]
pub mod mixed;
mod parallel;
pub mod routines;

use crate::types::MappingType;

use mixed::fence_if_mixed;
use parallel::Job;
#[doc(hidden)]
pub use parallel::end_threads;
pub(crate) use parallel::set_threads;

/// Copies `len` bytes to a mapping. The data is pushed out to the GPU, before anything that the thread
/// stores afterwards.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes; `dst` lies in a mapping of type `mapping_type`.
#[doc(hidden)]
#[inline(always)]
pub unsafe fn to_mapping(mapping_type: MappingType, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        if routines::write_word(dst, src, len) {
            fence_if_mixed();
        } else if is_plain(mapping_type, len) {
            routines::write_wc(dst, src, len);
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
#[doc(hidden)]
#[inline(always)]
pub unsafe fn from_mapping(mapping_type: MappingType, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        if routines::read_word(dst, src, len) {
            fence_if_mixed();
        } else if is_plain(mapping_type, len) {
            routines::read_wc(dst, src, len);
            fence_if_mixed();
        } else {
            read_otherwise(mapping_type, dst, src, len);
        }
    }
}

/// Whether a copy is of the common kind: through a write-combining mapping, and by one thread.
///
/// These are inlined into the C functions, which then store little but return addresses. The CPU
/// executes past SFENCE, but later stores, including those to the stack, queue behind it; fewer of them
/// mean fewer stalls in bursts of small writes (docs/performance.md).
#[inline(always)]
fn is_plain(mapping_type: MappingType, len: usize) -> bool {
    len < parallel::WORTHWHILE && mapping_type == MappingType::WriteCombining
}

/// # Safety
/// As for [`to_mapping`].
#[inline(never)]
unsafe fn write_otherwise(mapping_type: MappingType, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        if len < parallel::WORTHWHILE {
            write_alone(mapping_type, dst, src, len);
        } else {
            let (device, chunk_size) = (dst.addr(), parallel::WRITTEN_AT_A_TIME);
            let copy = write_alone;
            Job {
                copy,
                mapping_type,
                dst,
                src,
                len,
                device,
                chunk_size,
            }
            .run();
        }
    }
    fence_if_mixed();
}

/// Copies by the calling thread.
///
/// # Safety
/// As for [`to_mapping`].
#[inline(always)]
unsafe fn write_alone(mapping_type: MappingType, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        match mapping_type {
            MappingType::WriteCombining => routines::write_wc(dst, src, len),
            MappingType::Device => routines::write_device(dst, src, len),
            MappingType::Caching => routines::write_cached(dst, src, len),
        }
    }
}

/// # Safety
/// As for [`from_mapping`].
#[inline(never)]
unsafe fn read_otherwise(mapping_type: MappingType, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        if len < parallel::WORTHWHILE {
            read_alone(mapping_type, dst, src, len);
        } else {
            let (device, chunk_size) = (src.addr(), parallel::READ_AT_A_TIME);
            let copy = read_alone;
            Job {
                copy,
                mapping_type,
                dst,
                src,
                len,
                device,
                chunk_size,
            }
            .run();
        }
    }
    fence_if_mixed();
}

/// Copies by the calling thread.
///
/// # Safety
/// As for [`from_mapping`].
#[inline(always)]
unsafe fn read_alone(mapping_type: MappingType, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        match mapping_type {
            MappingType::WriteCombining => routines::read_wc(dst, src, len),
            MappingType::Device => routines::read_device(dst, src, len),
            MappingType::Caching => routines::read_cached(dst, src, len),
        }
    }
}
