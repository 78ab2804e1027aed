//! The copy routine and the fences for architectures without specialized copy routines.

use crate::routines::instructions::Work;
use crate::routines::portable;
use crate::routines::routine::{Item, Routine};
use crate::routines::shape::Shaped;

/// Returns the routines, best first.
pub fn supported() -> impl Iterator<Item = &'static Routine> {
    [&portable::ROUTINE].into_iter()
}

/// Returns `None`, because no routine is specific to this architecture. On other architectures, this function runs the
/// copy loop `W` with the instructions of a routine that is specific to the architecture.
///
/// # Safety
/// The contract of [`Work::run`].
#[inline(always)]
pub(crate) unsafe fn run<W: Work>(_: &Routine, _: impl Shaped, _: usize, _: impl Fn(usize) -> Item) -> Option<bool> {
    None
}

/// The fences, which are sequentially consistent, before and after each read and write.
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
