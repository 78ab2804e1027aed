//! The subjects of the tests, which are all routines of this CPU, and the public copies of the other
//! mapping types. Words go first through the functions for words, as the library's callers do it.

use crate::routines::{self, Routine};

#[derive(Clone, Copy)]
pub(crate) enum Subject {
    Routine(&'static Routine),
    Cached,
    Device,
}

impl Subject {
    pub(crate) fn all() -> Vec<Subject> {
        let routines = routines::supported().map(Subject::Routine);
        routines.chain([Subject::Cached, Subject::Device]).collect()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Subject::Routine(routine) => routine.name(),
            Subject::Cached => "write_cached, read_cached",
            Subject::Device => "write_device, read_device",
        }
    }

    /// # Safety
    /// The contract of [`routines::write_wc`].
    pub(crate) unsafe fn write(self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: contract of this function; the routines came from `routines::supported`.
        unsafe {
            if routines::write_word(dst, src, len) {
                return;
            }
            match self {
                Subject::Routine(routine) => routines::write_wc(routine, dst, src, len),
                Subject::Cached => routines::write_cached(dst, src, len),
                Subject::Device => routines::write_device(dst, src, len),
            }
        }
    }

    /// # Safety
    /// The contract of [`routines::read_wc`].
    pub(crate) unsafe fn read(self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: contract of this function; the routines came from `routines::supported`.
        unsafe {
            if routines::read_word(dst, src, len) {
                return;
            }
            match self {
                Subject::Routine(routine) => routines::read_wc(routine, dst, src, len),
                Subject::Cached => routines::read_cached(dst, src, len),
                Subject::Device => routines::read_device(dst, src, len),
            }
        }
    }
}
