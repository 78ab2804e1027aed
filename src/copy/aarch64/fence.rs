//! The fences of AArch64, for the full system: the GPU is outside of every smaller domain.

use core::arch::asm;

/// Makes the loads of a read fresh, and later than those of all reads before it. DMB LD would do
/// for the second; DMB SY also keeps them behind the stores that the GPU may be answering.
#[inline(always)]
pub(in super::super) fn before_read() {
    full();
}

/// Orders the stores of a write before those of all writes after it: Normal-NC stores otherwise
/// pass each other.
#[inline(always)]
pub(in super::super) fn after_write() {
    // SAFETY: DMB touches neither memory, registers nor flags.
    unsafe { asm!("dmb st", options(nostack, preserves_flags)) }
}

/// Orders all loads and stores before it against all after it.
#[inline(always)]
pub(in super::super) fn full() {
    // SAFETY: DMB touches neither memory, registers nor flags.
    unsafe { asm!("dmb sy", options(nostack, preserves_flags)) }
}
