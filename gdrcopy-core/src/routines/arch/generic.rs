//! Fallback for architectures without specialized routines.

use crate::routines::portable;
use crate::routines::routine::Routine;

/// The routines, best first.
pub fn supported() -> impl Iterator<Item = &'static Routine> {
    [&portable::ROUTINE].into_iter()
}

#[cfg(gdrapi_loom)]
pub(crate) use crate::routines::loom::fence;

/// A SeqCst fence on both sides of reads and writes.
#[cfg(not(gdrapi_loom))]
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
