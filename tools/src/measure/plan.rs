//! The copies to measure, and where in the buffers they are.
#![forbid(unsafe_code)]

use serde::Serialize;

/// The size of a cache line in bytes.
pub(crate) const LINE: usize = 64;

/// The number of guard bytes before the range of a copy, and after it. A copy must not change them.
pub(crate) const GUARD: usize = 128;

/// The most bytes of the GPU buffer over which copies of one size are spread. They are spread so that a read does not
/// find a cache line that an earlier read left in the CPU's buffers.
const SPREAD: usize = 256 << 10;

/// The most windows, each a range of the GPU buffer, over which copies of one size are spread.
const MAX_WINDOWS: usize = 64;

/// The size of the largest write that is timed in batches. A small write takes less time than reading the clock.
const LARGEST_BATCHED: usize = 4096;

pub(crate) const BATCH: usize = 16;

/// The direction of a copy, seen from the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    /// Copies to the mapping.
    #[default]
    Write,
    /// Copies from the mapping.
    Read,
}

impl Direction {
    pub(crate) const BOTH: [Direction; 2] = [Direction::Write, Direction::Read];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Direction::Write => "write",
            Direction::Read => "read",
        }
    }
}

/// Copies of one direction, size and alignment, which are measured together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Point {
    pub(crate) direction: Direction,
    #[serde(rename = "size_bytes")]
    pub(crate) size: usize,
    /// The offset in the GPU buffer at which the first copy starts.
    #[serde(rename = "offset_bytes")]
    pub(crate) offset: usize,
    /// The distance of the copy's start on the device side from the start of its cache line.
    #[serde(rename = "alignment_bytes")]
    pub(crate) alignment: usize,
    /// The number of windows (ranges of the GPU buffer) that the copies use in turn.
    #[serde(skip)]
    pub(crate) windows: usize,
    #[serde(skip)]
    stride: usize,
}

impl Point {
    /// Returns copies that all start at the same offset.
    pub(crate) fn fixed(direction: Direction, size: usize, offset: usize) -> Point {
        Point { direction, size, offset, alignment: offset % LINE, windows: 1, stride: 0 }
    }

    /// Returns copies of this alignment, spread over windows of the GPU buffer that have [`GUARD`] bytes around them.
    pub(crate) fn spread(direction: Direction, size: usize, alignment: usize) -> Point {
        let mut point = Point::fixed(direction, size, GUARD + alignment % LINE);
        point.stride = (point.alignment + size + 2 * GUARD).next_multiple_of(LINE);
        point.windows = (SPREAD / point.stride).clamp(1, MAX_WINDOWS);
        point
    }

    /// Returns the offset in the GPU buffer at which the copy with this index starts.
    pub(crate) fn device_offset(&self, index: usize) -> usize {
        self.offset + self.stride * (index % self.windows)
    }

    /// Returns the number of calls that are timed together if the user does not give the number of calls.
    pub(crate) fn batch(&self) -> usize {
        match self.direction {
            Direction::Write if self.size <= LARGEST_BATCHED => BATCH,
            _ => 1,
        }
    }

    /// Returns the number of bytes that the host buffer needs. Copies start at the offset `GUARD` in it.
    pub(crate) fn host_len(&self) -> usize {
        GUARD + self.size + GUARD
    }

    /// Returns the number of bytes that the GPU buffer needs.
    pub(crate) fn device_len(&self) -> usize {
        self.device_offset(self.windows - 1) + self.size + GUARD
    }
}

/// Returns the numbers 1, 2, 4, 8, … up to this one.
pub(crate) fn powers_of_two(largest: usize) -> Vec<usize> {
    let exponents = 0..=largest.max(1).ilog2();
    exponents.map(|exponent| 1 << exponent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(size: usize, alignment: usize) -> Point {
        Point::spread(Direction::Read, size, alignment)
    }

    #[test]
    fn windows_keep_their_alignment_and_do_not_overlap() {
        for size in [1, 64, 1000, 4096, 65536, 1 << 20] {
            for alignment in [0, 1, 20, 63] {
                let point = point(size, alignment);
                assert!(point.windows >= 1);
                for index in 0..point.windows {
                    assert_eq!(point.device_offset(index) % LINE, alignment);
                }
                if point.windows > 1 {
                    let gap = point.device_offset(1) - (point.device_offset(0) + size);
                    assert!(gap >= 2 * GUARD);
                }
                assert!(point.device_len() <= (2 * SPREAD).max(size + 4 * GUARD));
            }
        }
        assert_eq!(point(4, 0).windows, MAX_WINDOWS);
        assert_eq!(point(1 << 20, 0).windows, 1);
    }
}
