//! The CPU's counter, which all processes of a computer share.

/// Its value in 20 cycles, without waiting for earlier loads and stores.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Its value when earlier loads have got their data, even from the GPU. Does not wait for stores to leave the CPU.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[must_use]
pub fn ticks_after_loads() -> u64 {
    let (low, high): (u64, u64);
    // SAFETY: every x86-64 CPU has both instructions.
    unsafe {
        std::arch::asm!("lfence", "rdtsc", out("rax") low, out("rdx") high, options(nostack, preserves_flags));
    }
    low | high << 32
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

/// Its value when earlier loads have got their data. The second instruction keeps the counter from being read before.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
#[must_use]
pub fn ticks_after_loads() -> u64 {
    let ticks;
    // SAFETY: as above; barriers have no other effects.
    unsafe {
        std::arch::asm!("dsb ld", "isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack, preserves_flags));
    }
    ticks
}
