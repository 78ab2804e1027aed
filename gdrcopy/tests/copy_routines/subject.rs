//! What is tested: all routines of this CPU, and the public copies of each mapping type. Words go
//! first through the functions for words, as the library's callers do it.

use crate::copy::{self, Routine};

#[derive(Clone, Copy)]
pub(crate) enum Subject {
    Routine(&'static Routine),
    WriteCombining,
    Cached,
    Device,
}

impl Subject {
    pub(crate) fn all() -> Vec<Subject> {
        let routines = copy::supported().map(Subject::Routine);
        routines
            .chain([Subject::WriteCombining, Subject::Cached, Subject::Device])
            .collect()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Subject::Routine(routine) => routine.name(),
            Subject::WriteCombining => "write_wc, read_wc",
            Subject::Cached => "write_cached, read_cached",
            Subject::Device => "write_device, read_device",
        }
    }

    /// # Safety
    /// As for [`copy::write_wc`].
    pub(crate) unsafe fn write(self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: contract of this function; the routines came from `copy::supported`.
        unsafe {
            if copy::write_word(dst, src, len) {
                return;
            }
            match self {
                Subject::Routine(routine) => copy::write_by(routine, dst, src, len),
                Subject::WriteCombining => copy::write_wc(dst, src, len),
                Subject::Cached => copy::write_cached(dst, src, len),
                Subject::Device => copy::write_device(dst, src, len),
            }
        }
    }

    /// # Safety
    /// As for [`copy::read_wc`].
    pub(crate) unsafe fn read(self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: contract of this function; the routines came from `copy::supported`.
        unsafe {
            if copy::read_word(dst, src, len) {
                return;
            }
            match self {
                Subject::Routine(routine) => copy::read_by(routine, dst, src, len),
                Subject::WriteCombining => copy::read_wc(dst, src, len),
                Subject::Cached => copy::read_cached(dst, src, len),
                Subject::Device => copy::read_device(dst, src, len),
            }
        }
    }
}
