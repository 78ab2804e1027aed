//! Copies on POWER by 4-byte stores and 8-byte loads, as NVIDIA's libgdrapi 2.6 does. Their speed was not measured.

use core::ptr;

use crate::routines::instructions::{Instructions, Work};
use crate::routines::portable::{self, Portable};
use crate::routines::routine::{BlockFn, CopyFn, Item, Routine};
use crate::routines::shape::Shaped;
use crate::routines::stores;

static POWER: Routine = Routine { name: "power", write, write_one: write, read: portable::read };

/// Returns the routines, best first.
pub fn supported() -> impl Iterator<Item = &'static Routine> {
    [&POWER, &portable::ROUTINE].into_iter()
}

/// # Safety
/// The contract of `routines::write`.
unsafe fn write(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { stores::by_line::<u32, u32>(dst, src, len, stores::line::<u32>) }
}

struct Power;

impl Instructions for Power {
    const BLOCK: usize = Portable::BLOCK;
    const LOAD_BLOCK: BlockFn = Portable::LOAD_BLOCK;
    const LOADS_OVERLAP: bool = Portable::LOADS_OVERLAP;
    const STORE_LINE: BlockFn = stores::line::<u32>;
    const STORE_16: BlockFn = stores::block::<u32, 16>;
    const STORE_32: BlockFn = stores::block::<u32, 32>;
    const WRITE: CopyFn = write;
    const READ: CopyFn = portable::read;
}

/// Runs the loop `W` by `routine`'s instructions. Returns `None` if the routine is not specific to this architecture.
///
/// # Safety
/// The contract of [`Work::run`].
#[inline(always)]
pub(crate) unsafe fn run<W: Work>(
    routine: &Routine,
    shape: impl Shaped,
    count: usize,
    item: impl Fn(usize) -> Item,
) -> Option<bool> {
    // SAFETY: contract of this function.
    unsafe { if ptr::eq(routine, &POWER) { Some(W::run::<Power>(shape, count, item)) } else { None } }
}

/// The fences of POWER. A sequentially consistent fence is SYNC, the only instruction that orders memory of every type.
/// LWSYNC orders only cacheable memory. SYNC after a write also keeps the CPU from merging the write with later stores.
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
