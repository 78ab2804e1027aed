//! The fences of AArch64. The CPU may reorder all accesses to Normal memory, cached or not. So every ordering takes a
//! DMB instruction. Its scope is the full system, because the GPU is outside of every smaller shareability domain.

use core::arch::asm;

/// Makes a read's loads return data no older than the read, and orders them after the loads of earlier reads. DMB LD
/// would do that. But the data may be the GPU's answer to earlier stores, so DMB SY orders the loads after these too.
#[inline(always)]
pub fn before_read() {
    full();
}

/// Makes a read an acquire, so that its loads come before every later load and store of the thread.
#[inline(always)]
pub fn after_read() {
    // SAFETY: DMB touches neither memory, registers nor flags.
    unsafe { asm!("dmb ld", options(nostack, preserves_flags)) }
}

/// Makes a write a release, so that its stores come after every earlier load and store of the thread. DMB ST would let
/// the stores pass earlier loads.
#[inline(always)]
pub fn before_write() {
    full();
}

/// Orders the stores of a write before every later store, and pushes them out.
///
/// DMB orders but does not push, and a CPU may hold stores to write-combining memory (Normal-NC) back to merge them
/// with later stores. The hint DGH (HINT #6) asks it to stop waiting. CPUs without FEAT_DGH take DGH for a NOP and may
/// hold the stores back. DSB ST would push on those CPUs too, but stalls the thread until the stores have completed.
/// The stall takes a round trip for each write, even on cached mappings, where nothing is held back.
#[inline(always)]
pub fn after_write() {
    // SAFETY: DMB and HINT touch neither memory, registers nor flags.
    unsafe { asm!("dmb st", "hint #6", options(nostack, preserves_flags)) }
}

/// Orders all earlier loads and stores of the thread before all later ones.
#[inline(always)]
pub fn full() {
    // SAFETY: DMB touches neither memory, registers nor flags.
    unsafe { asm!("dmb sy", options(nostack, preserves_flags)) }
}
