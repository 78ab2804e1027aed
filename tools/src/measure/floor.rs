//! How long a read takes at least: round trips to the GPU and back.

use std::sync::atomic::{Ordering, fence};

use super::clock::Clock;
use super::stats::Times;
use crate::libgdrapi::Mapped;

/// Bytes of a cache line, the largest unit that crosses PCIe undivided.
pub(crate) const LINE: usize = 64;

/// Cache lines that a CPU core has on their way at a time.
const IN_FLIGHT: usize = 16;

/// Loads whose times are taken.
const LOADS: usize = 501;

/// Loads faster than so many nanoseconds come out of the CPU's own caches: there is no round trip.
const FASTEST_ROUND_TRIP: f64 = 200.0;

/// Nanoseconds of plain 4-byte loads from a mapping, each from a line that nobody has read before.
///
/// They come out a tenth longer now and then, for a while. A floor is the shorter of two such looks,
/// before and after what it is for.
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

/// Waits until no earlier write to a mapping is under way: what is timed next finds the CPU's store buffer
/// empty, whoever wrote before.
pub(crate) fn drain(mapped: &Mapped) {
    fence(Ordering::SeqCst);
    // SAFETY: an aligned word of the mapping. Its data come back behind all writes before it, and
    // the clock's first look waits for them.
    unsafe { mapped.at(0).cast::<u32>().read_volatile() };
}

/// Nanoseconds of one round trip; none on a machine where loads make none.
pub(crate) fn round_trip(load: &Times) -> Option<f64> {
    Some(load.median).filter(|&ns| ns >= FASTEST_ROUND_TRIP)
}

/// Round trips that a read of so many cache lines takes at least.
pub(crate) fn round_trips(lines: usize) -> usize {
    lines.div_ceil(IN_FLIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_lines_are_one_round_trip() {
        assert_eq!(round_trips(1), 1);
        assert_eq!(round_trips(16), 1);
        assert_eq!(round_trips(17), 2);
    }

    #[test]
    fn a_load_from_a_cache_is_no_round_trip() {
        assert_eq!(round_trip(&Times::new(vec![3.0])), None);
        assert_eq!(round_trip(&Times::new(vec![1000.0])), Some(1000.0));
    }
}
