//! POWER: 4-byte stores and 8-byte loads, found best by the original library. Not measured here.

use super::kernel::Kernel;
use super::{portable, stores};

pub(super) static KERNELS: [&Kernel; 2] = [
    &Kernel {
        name: "power",
        runs: |_| true,
        write,
        read: portable::read,
    },
    &portable::KERNEL,
];

/// # Safety
/// As for [`write_wc`](crate::copy::write_wc).
unsafe fn write(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { stores::by_line::<u32>(dst, src, len, stores::line::<u32>) }
}

/// The instruction sets that kernels need beyond the base of POWER: none.
pub(super) struct Cpu;

impl Cpu {
    pub(super) fn detect() -> Self {
        Cpu
    }
}

/// The fences of POWER. A sequentially consistent fence is SYNC, the only one that orders accesses
/// to memory of every type: LWSYNC orders those to cacheable memory only. Behind a write it also
/// ends the merging of its stores with later ones.
pub(super) mod fence {
    use core::sync::atomic::{Ordering, fence};

    pub(in super::super) use full as after_read;
    pub(in super::super) use full as after_write;
    pub(in super::super) use full as before_read;
    pub(in super::super) use full as before_write;

    #[inline(always)]
    pub(in super::super) fn full() {
        fence(Ordering::SeqCst);
    }
}
