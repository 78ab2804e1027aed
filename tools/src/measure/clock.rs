//! The clock is a counter of the CPU, which all processes of a computer share. tools/trace/trace.c reads it too.
//!
//! Reading the clock waits until every earlier load has returned its data. It does not wait for stores. But each
//! copy to a mapping ends with a fence.

use std::time::{Duration, Instant};

/// Converts counter values to nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    ns_per_tick: f64,
    /// The number of ticks between two readings with nothing between them.
    overhead: f64,
}

impl Clock {
    pub(crate) fn calibrate() -> Clock {
        let mut empty: Vec<_> = (0..1001).map(|_| -(ticks() as f64 - ticks() as f64)).collect();
        empty.sort_by(f64::total_cmp);
        Clock { ns_per_tick: ns_per_tick(), overhead: empty[empty.len() / 2] }
    }

    /// Returns the nanoseconds that `work` takes, without the cost of the clock.
    #[inline(always)]
    pub(crate) fn time(&self, work: impl FnOnce()) -> f64 {
        let start = ticks();
        work();
        let end = ticks();
        ((end - start) as f64 - self.overhead).max(0.0) * self.ns_per_tick
    }
}

/// Returns the nanoseconds of a tick. Compares the counter with the system's clock for 50 ms.
pub(crate) fn ns_per_tick() -> f64 {
    let start = Instant::now();
    let first = ticks();
    while start.elapsed() < Duration::from_millis(50) {
        std::hint::spin_loop();
    }
    let ticks = ticks() - first;
    start.elapsed().as_nanos() as f64 / ticks as f64
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ticks() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every x86-64 CPU has both instructions.
    unsafe {
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn ticks() -> u64 {
    let ticks;
    // SAFETY: the instructions write only `ticks`. Linux allows programs to read the register cntvct_el0.
    unsafe {
        std::arch::asm!("dsb ld", "isb", "mrs {}, cntvct_el0", "isb", out(reg) ticks, options(nostack));
    }
    ticks
}
