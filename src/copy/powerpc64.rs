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
    // SAFETY: the caller vouches for the two ranges.
    unsafe { stores::by_line::<u32>(dst, src, len, |to, from| stores::line::<u32>(to, from)) }
}

/// The instruction sets that kernels need beyond the base of POWER: none.
pub(super) struct Cpu;

impl Cpu {
    pub(super) fn detect() -> Self {
        Cpu
    }
}

/// The fences of POWER. A sequentially consistent fence is SYNC, the only one that orders accesses
/// to memory of every type.
pub(super) mod fence {
    use core::sync::atomic::{Ordering, fence};

    #[inline(always)]
    pub(in super::super) fn before_read() {
        full();
    }

    #[inline(always)]
    pub(in super::super) fn after_write() {
        full();
    }

    #[inline(always)]
    pub(in super::super) fn full() {
        fence(Ordering::SeqCst);
    }
}
