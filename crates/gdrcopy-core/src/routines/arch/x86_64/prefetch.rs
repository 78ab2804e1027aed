//! Fetches cache lines before they are stored.

use core::arch::asm;

/// Fetches the cache line of host memory at an address, because it is about to be stored. The address may be invalid,
/// because the instruction never faults.
#[inline(always)]
pub(super) fn for_store(dst: *const u8) {
    // SAFETY: the hint changes neither registers nor flags. It does nothing if the CPU has no PREFETCHW.
    unsafe { asm!("prefetchw [{}]", in(reg) dst, options(nostack, preserves_flags, readonly)) }
}
