//! The routine and the fences for architectures without specialized routines.

use crate::routines::instructions::Work;
use crate::routines::portable;
use crate::routines::routine::{Item, Routine};
use crate::routines::shape::Shaped;

/// Returns the routines, best first.
pub fn supported() -> impl Iterator<Item = &'static Routine> {
    [&portable::ROUTINE].into_iter()
}

/// Runs a loop by a routine's instructions. Returns its result; `None` if this architecture has no such routine.
///
/// # Safety
/// The contract of [`Work::run`].
#[inline(always)]
pub(crate) unsafe fn run<W: Work>(_: &Routine, _: impl Shaped, _: usize, _: impl Fn(usize) -> Item) -> Option<bool> {
    None
}

/// A SeqCst fence on both sides of reads and writes.
pub(crate) mod fence {
    use core::sync::atomic::{Ordering, fence};

    pub use full as after_read;
    pub use full as after_write;
    pub use full as before_read;
    pub use full as before_write;

    pub fn full() {
        fence(Ordering::SeqCst);
    }
}
