//! The minimum time of a read, as round trips to the GPU.

use std::sync::atomic::{Ordering, fence};

use super::clock::Clock;
use super::stats::Times;
use crate::libgdrapi::Mapped;

pub(crate) const LINE: usize = 64;

const LOADS: usize = 501;

/// Loads that take less, in nanoseconds, come from a cache of the CPU, without a round trip.
const FASTEST_ROUND_TRIP: f64 = 200.0;

/// Nanoseconds of plain 4-byte loads from a mapping, each from another line.
///
/// At times they take a tenth longer for a while, so callers measure before and after the copies, and
/// use the shorter times.
pub(crate) fn loads(mapped: &Mapped, clock: &Clock) -> Times {
    let lines = (mapped.len() / LINE).min(LOADS);
    let words = (0..lines).map(|line| mapped.at(line * LINE).cast::<u32>());
    let times = words.map(|word| {
        assert!(word.is_aligned());
        // SAFETY: an aligned word of the mapping.
        clock.time(|| unsafe {
            word.read_volatile();
        })
    });
    Times::new(times.collect())
}

/// Waits until all earlier writes to the mapping have left the CPU, so that the next copy finds the
/// store buffer empty.
pub(crate) fn drain(mapped: &Mapped) {
    fence(Ordering::SeqCst);
    // SAFETY: an aligned word of the mapping. Its value returns after all earlier writes, and the
    // clock waits for it.
    unsafe { mapped.at(0).cast::<u32>().read_volatile() };
}

/// Nanoseconds of one round trip; none if loads come from a cache.
pub(crate) fn round_trip(load: &Times) -> Option<f64> {
    if load.median >= FASTEST_ROUND_TRIP { Some(load.median) } else { None }
}
