//! The subjects of the tests, which are all routines of this CPU, and those of the other
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
            Subject::Cached => "cached",
            Subject::Device => "device",
        }
    }

    fn routine(self) -> &'static Routine {
        match self {
            Subject::Routine(routine) => routine,
            Subject::Cached => &routines::CACHED,
            Subject::Device => &routines::DEVICE,
        }
    }

    /// # Safety
    /// The contract of [`routines::write`].
    pub(crate) unsafe fn write(self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: contract of this function; the routines came from `routines::supported`.
        unsafe {
            if routines::write_word(dst, src, len) {
                return;
            }
            routines::write(self.routine(), dst, src, len);
        }
    }

    /// # Safety
    /// The contract of [`routines::read`].
    pub(crate) unsafe fn read(self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: contract of this function; the routines came from `routines::supported`.
        unsafe {
            if routines::read_word(dst, src, len) {
                return;
            }
            routines::read(self.routine(), dst, src, len);
        }
    }
}
