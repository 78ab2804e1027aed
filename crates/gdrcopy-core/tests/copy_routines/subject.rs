//! The routines under test, and copies by them. As in the library, words are copied by the functions for words.

use crate::routines::{self, Routine};

/// Returns all routines of this CPU, and the routine for cached mappings.
pub(crate) fn routines() -> impl Iterator<Item = &'static Routine> {
    routines::supported().chain([&routines::CACHED])
}

/// # Safety
/// The contract of [`routines::write`].
pub(crate) unsafe fn write(routine: &Routine, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function; the routines came from `routines`.
    unsafe {
        if !routines::write_word(dst, src, len) {
            routines::write(routine, dst, src, len);
        }
    }
}

/// # Safety
/// The contract of [`routines::read`].
pub(crate) unsafe fn read(routine: &Routine, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function; the routines came from `routines`.
    unsafe {
        if !routines::read_word(dst, src, len) {
            routines::read(routine, dst, src, len);
        }
    }
}
