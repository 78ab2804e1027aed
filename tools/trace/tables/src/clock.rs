//! The CPU's counter, which all processes of a computer share.

/// Its value: 20 cycles, without waiting for loads and stores before it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Its value.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    let ticks;
    // SAFETY: Linux lets programs read the register; it has no effects.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags));
    }
    ticks
}
