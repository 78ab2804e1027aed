//! The fences of x86-64.

use core::arch::asm;

/// Makes the loads of a read fresh, and later than those of all reads before it.
///
/// MFENCE, as Intel's manual asks for where another agent writes memory that is read by streaming
/// loads. LFENCE orders them too, some 10 ns of 1,000 faster, but leaves the buffers of streaming
/// loads filled: a loop of 32-byte streaming loads and LFENCE read the same old line 20,000 times
/// in 8 ns each while the GPU was writing it.
#[inline(always)]
pub(in super::super) fn before_read() {
    full();
}

/// Pushes out the stores of a write: those to a write-combining mapping are otherwise held back, and
/// pass each other. The CPU does not wait for it, where measured: only its later stores do.
#[inline(always)]
pub(in super::super) fn after_write() {
    // SAFETY: SFENCE is part of x86-64 and touches neither memory, registers nor flags.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}

/// Orders all loads and stores before it against all after it.
#[inline(always)]
pub(in super::super) fn full() {
    // SAFETY: MFENCE is part of x86-64 and touches neither memory, registers nor flags.
    unsafe { asm!("mfence", options(nostack, preserves_flags)) }
}
