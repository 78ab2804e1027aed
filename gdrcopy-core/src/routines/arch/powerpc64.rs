//! POWER: 4-byte stores and 8-byte loads, which NVIDIA's libgdrapi 2.6 uses. Not measured here.

use crate::routines::routine::Routine;
use crate::routines::{portable, stores};

static POWER: Routine = Routine { name: "power", write, read: portable::read, blocks: Some(portable::BLOCKS) };

/// The routines, best first.
pub fn supported() -> impl Iterator<Item = &'static Routine> {
    [&POWER, &portable::ROUTINE].into_iter()
}

/// # Safety
/// The contract of `write`.
unsafe fn write(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { stores::by_line::<u32, u32>(dst, src, len, stores::line::<u32>) }
}

/// The fences of POWER. A sequentially consistent fence is SYNC, the only one that orders accesses
/// to memory of every type. LWSYNC orders those to cacheable memory only. After a write it also
/// ends the merging of its stores with later ones.
pub(crate) mod fence {
    use core::sync::atomic::{Ordering, fence};

    pub use full as after_read;
    pub use full as after_write;
    pub use full as before_read;
    pub use full as before_write;

    #[inline(always)]
    pub fn full() {
        fence(Ordering::SeqCst);
    }
}
