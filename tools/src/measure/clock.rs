//! The clock, and the cost of reading it.
//!
//! On x86-64 it is the time stamp counter between two LFENCEs. The second reading waits until every
//! load of the timed calls has returned its data. Stores end with the library's own fence. Elsewhere
//! it is the system's monotonic clock.

use std::time::{Duration, Instant};

/// Converts counter values to nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    ns_per_tick: f64,
    /// Ticks between two readings with nothing between them.
    overhead: f64,
}

impl Clock {
    pub(crate) fn calibrate() -> Clock {
        let ns_per_tick = ns_per_tick(now, Duration::from_millis(50));
        let mut empty: Vec<_> = (0..1001).map(|_| -(now() as f64 - now() as f64)).collect();
        empty.sort_by(f64::total_cmp);
        Clock { ns_per_tick, overhead: empty[empty.len() / 2] }
    }

    /// Nanoseconds that `work` takes, without the cost of the clock.
    #[inline(always)]
    pub(crate) fn time(&self, work: impl FnOnce()) -> f64 {
        let start = now();
        work();
        let end = now();
        ((end - start) as f64 - self.overhead).max(0.0) * self.ns_per_tick
    }
}

/// Compares a counter with the system's clock for this long.
pub(crate) fn ns_per_tick(counter: fn() -> u64, duration: Duration) -> f64 {
    let start = Instant::now();
    let first = counter();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
    let ticks = counter() - first;
    start.elapsed().as_nanos() as f64 / ticks as f64
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn now() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every x86-64 CPU has both instructions.
    unsafe {
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn now() -> u64 {
    use std::sync::LazyLock;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

/// The counter that tools/trace/trace.c reads, which all processes of a computer share.
#[cfg(target_arch = "x86_64")]
pub(crate) fn ticks() -> u64 {
    now()
}

/// The same.
#[cfg(target_arch = "aarch64")]
pub(crate) fn ticks() -> u64 {
    let ticks;
    // SAFETY: Linux lets programs read the register; it has no effects.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags));
    }
    ticks
}
