//! Fallback for architectures without specialized routines.

use crate::routines::portable;
use crate::routines::routine::Routine;

/// The routines, best first.
pub fn supported() -> impl Iterator<Item = &'static Routine> {
    [&portable::ROUTINE].into_iter()
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
