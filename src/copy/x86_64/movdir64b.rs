//! MOVDIR64B: a line from memory to memory in one instruction, as one PCIe write.
//!
//! # Safety
//! The function needs a CPU with MOVDIR64B.

use core::arch::asm;
use core::arch::x86_64::__m128i;

use super::stores;

/// # Safety
/// Needs MOVDIR64B; the ranges are as for [`write_wc`](crate::copy::write_wc).
pub(super) unsafe fn write(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller vouches for the CPU and the two ranges.
    unsafe { stores::by_line::<__m128i>(dst, src, len, |to, from| store_line(to, from)) }
}

/// # Safety
/// Needs MOVDIR64B, a readable `src` and a writable, aligned line `dst`.
#[inline]
unsafe fn store_line(dst: *mut u8, src: *const u8) {
    // SAFETY: the caller vouches for the CPU and for both sides.
    unsafe {
        asm!(
            "movdir64b {}, [{}]",
            in(reg) dst, in(reg) src,
            options(nostack, preserves_flags)
        );
    }
}
