//! Copies by size and time.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::atomic::AtomicU64;

/// Classes of sizes, powers of two up to 1 GiB.
pub const SIZES: usize = 31;
/// Classes of times, four for each power of two. The first eight have one time each.
pub const BUCKETS: usize = 160;

/// Copies of one direction and class of sizes.
#[derive(Debug)]
#[repr(C)]
pub struct Class {
    /// Bytes in all.
    pub bytes: AtomicU64,
    /// Ticks in all.
    pub ticks: AtomicU64,
    /// How many took how long.
    pub times: [AtomicU64; BUCKETS],
}

/// The class of a size. Class n begins at 2 to the power of n.
#[inline]
#[must_use]
pub fn size_class(size: usize) -> usize {
    (size.max(1).ilog2() as usize).min(SIZES - 1)
}

/// The class of a time.
#[inline]
#[must_use]
pub fn time_bucket(ticks: u64) -> usize {
    let shift = (ticks | 4).ilog2() - 2;
    (4 * shift as usize + (ticks >> shift) as usize).min(BUCKETS - 1)
}

/// The times of a class.
#[must_use]
pub fn bucket_bounds(bucket: usize) -> Range<u64> {
    let bound = |bucket: usize| match bucket {
        0..4 => bucket as u64,
        _ => (4 + bucket as u64 % 4) << (bucket / 4 - 1),
    };
    bound(bucket)..bound(bucket + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_its_bucket() {
        for ticks in (0..5000).chain([1 << 20, (1 << 30) + 12345, 1 << 40]) {
            let bounds = bucket_bounds(time_bucket(ticks));
            assert!(bounds.contains(&ticks), "{ticks} is not in {bounds:?}");
        }
        assert!((0..8).all(|ticks| bucket_bounds(time_bucket(ticks)) == (ticks..ticks + 1)));
        assert_eq!((time_bucket(0), time_bucket(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn size_classes_are_powers_of_two() {
        assert_eq!([1, 2, 3, 4, 1023, 1024].map(size_class), [0, 1, 1, 2, 9, 10]);
        assert_eq!([0, usize::MAX].map(size_class), [0, SIZES - 1]);
    }
}
