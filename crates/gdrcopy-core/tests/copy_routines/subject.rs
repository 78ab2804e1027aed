//! Copies by the routines under test. As in the library, aligned words are copied by `write_word` and `read_word`.

use crate::routines::{self, Routine};

/// Returns all copy routines that this CPU can run, and the one for cached mappings.
pub(crate) fn routines() -> impl Iterator<Item = &'static Routine> {
    routines::supported().chain([&routines::CACHED])
}

/// # Safety
/// The contract of [`routines::write`].
pub(crate) unsafe fn write(routine: &Routine, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function; the routine came from `routines`, so the CPU can run it.
    unsafe {
        if !routines::write_word(dst, src, len) {
            routines::write(routine, dst, src, len);
        }
    }
}

/// # Safety
/// The contract of [`routines::read`].
pub(crate) unsafe fn read(routine: &Routine, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function; the routine came from `routines`, so the CPU can run it.
    unsafe {
        if !routines::read_word(dst, src, len) {
            routines::read(routine, dst, src, len);
        }
    }
}
