//! Prefetches.

use core::arch::asm;

/// Fetches the line of host memory at an address, which is about to be stored. The address may be invalid, since this
/// never faults.
#[inline(always)]
pub(super) fn for_store(dst: *const u8) {
    // SAFETY: a hint that changes neither registers nor flags; it does nothing where the CPU has no PREFETCHW.
    unsafe { asm!("prefetchw [{}]", in(reg) dst, options(nostack, preserves_flags, readonly)) }
}
