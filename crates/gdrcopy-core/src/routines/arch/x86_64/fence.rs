//! The fences of x86-64.
//!
//! The manuals promise an order for write-back (WB) memory only: loads are not reordered with loads, stores with
//! stores, nor stores with earlier loads. Write-combining (WC) stores are gathered in buffers of their own and pass
//! each other. WC loads may be executed before earlier loads.

use core::arch::asm;
use core::sync::atomic::{Ordering, compiler_fence};

/// Makes the loads of a read return data no older than the read, and orders them after the loads of all earlier reads.
///
/// Intel's manual asks for MFENCE if another agent writes memory that is read by streaming loads. LFENCE orders them
/// too, and saves some 10 ns of a read's 1,000 ns, but leaves the buffers of streaming loads filled. With LFENCE,
/// streaming loads of 32 bytes returned the same old cache line 20,000 times, each in 8 ns, while the GPU wrote it.
#[inline(always)]
pub fn before_read() {
    full();
}

/// Makes a read an acquire, without an instruction.
///
/// Later stores leave the CPU after they have retired, and so after the loads of the read have returned. Later loads
/// from WB memory may run early, but retire in order and are repeated if their cache line is lost before that. Later
/// loads that the program itself makes from a WC mapping are not repeated. They come after the read only if the fence
/// of another read, or an MFENCE, comes between.
#[inline(always)]
pub fn after_read() {
    compiler_fence(Ordering::Acquire);
}

/// Makes a write a release, without an instruction.
///
/// The manuals promise that SFENCE makes every store before it visible before any store after it, whatever their memory
/// types. So all stores up to the end of the thread's previous write, WB and WC, come before the stores of this write.
/// The SFENCE of this write puts its own stores, and all WB stores since the previous write, before every later store.
///
/// The manuals do not promise that the WB stores since the last SFENCE come before this write's WC stores. That rests
/// on the store buffer: stores leave it in program order. A WB store is in the cache, where the GPU's coherent reads
/// find it, before a later WC store enters the WC buffer. Earlier loads have returned before any later store leaves.
#[inline(always)]
pub fn before_write() {
    compiler_fence(Ordering::Release);
}

/// Pushes out the stores of a write. Without this, stores to a write-combining mapping are held back, and pass each
/// other. As far as measured, the CPU goes on with the instructions after SFENCE, but later stores wait.
#[inline(always)]
pub fn after_write() {
    // SAFETY: SFENCE is part of x86-64 and touches neither memory, registers nor flags.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}

/// Orders all earlier loads and stores of the thread before all later ones.
#[inline(always)]
pub fn full() {
    // SAFETY: MFENCE is part of x86-64 and touches neither memory, registers nor flags.
    unsafe { asm!("mfence", options(nostack, preserves_flags)) }
}
