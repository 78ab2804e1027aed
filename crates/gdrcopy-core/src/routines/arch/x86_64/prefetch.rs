//! Fetches cache lines before bytes are stored to them.

use core::arch::asm;

/// Fetches the cache line at a host address that is about to be stored to. Even an invalid address does not fault.
#[inline(always)]
pub(super) fn for_store(dst: *const u8) {
    // SAFETY: the hint changes neither registers nor flags. It does nothing if the CPU has no PREFETCHW.
    unsafe { asm!("prefetchw [{}]", in(reg) dst, options(nostack, preserves_flags, readonly)) }
}
