//! Lengths, offsets and counts for calls. Some are ordinary, some are close to the length of the memory, and some are
//! extreme.
#![forbid(unsafe_code)]

use std::ops::{Bound, Range};

use proptest::prelude::*;
use proptest::sample::select;

/// A number that may depend on a length.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {
    Exactly(usize),
    /// The length plus this number, which may be negative.
    Beyond(isize),
    /// This many 65,536ths of the length.
    Part(u16),
}

const SMALL: [usize; 21] =
    [0, 1, 2, 3, 4, 7, 8, 16, 63, 64, 65, 100, 256, 1000, 4095, 4096, 4097, 65535, 65536, 65537, 1 << 20];

/// Sums and products with these sizes overflow. No computer could allocate any of them.
pub(crate) const HUGE: [usize; 9] = [
    1 << 62,
    isize::MAX as usize,
    1 << 63,
    (1 << 63) + 4096,
    usize::MAX - 65535,
    usize::MAX - 4095,
    usize::MAX - 63,
    usize::MAX - 1,
    usize::MAX,
];

impl Size {
    pub(crate) fn of(self, len: usize) -> usize {
        match self {
            Size::Exactly(size) => size,
            Size::Beyond(more) => len.wrapping_add_signed(more),
            Size::Part(part) => ((len as u128 * u128::from(part)) >> 16) as usize,
        }
    }

    /// Returns a size for calls whose contract permits no more than the length.
    pub(crate) fn inside(self, len: usize) -> usize {
        match self.of(len) {
            size if size <= len => size,
            size => size % (len + 1),
        }
    }
}

pub(crate) fn sizes() -> impl Strategy<Value = Size> {
    prop_oneof![
        4 => select(&SMALL).prop_map(Size::Exactly),
        4 => any::<u16>().prop_map(Size::Part),
        2 => (-2_isize..3).prop_map(Size::Beyond),
        1 => select(&HUGE).prop_map(Size::Exactly),
    ]
}

type Bounds = (Bound<usize>, Bound<usize>);

fn bound(choice: u64, at: usize) -> Bound<usize> {
    match choice % 4 {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(at),
        _ => Bound::Included(at),
    }
}

/// Returns the bounds of a range, and the range if it lies within `len`.
pub(crate) fn bounds([a, b]: [Size; 2], data: u64, len: usize) -> (Bounds, Option<Range<usize>>) {
    let first = bound(data, a.of(len));
    let last = bound(data >> 2, b.of(len));
    let start = match first {
        Bound::Unbounded => 0,
        Bound::Included(at) => at as u128,
        Bound::Excluded(at) => at as u128 + 1,
    };
    let end = match last {
        Bound::Unbounded => len as u128,
        Bound::Included(at) => at as u128 + 1,
        Bound::Excluded(at) => at as u128,
    };
    if start > end || end > len as u128 {
        return ((first, last), None);
    }
    ((first, last), Some(start as usize..end as usize))
}

/// A generator of numbers that look random. The number that it is made with determines all of them.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 29)
    }

    /// Returns a number below `limit`, or 0 if `limit` is 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}
