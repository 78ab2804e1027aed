//! The points of a sweep, and where in the buffers each of them copies.
#![forbid(unsafe_code)]

use gdrcopy_tools::floor::{self, LINE};
use serde::Serialize;

use crate::options::{Direction, Options};

/// Bytes on each side of a copy that must stay as they were.
pub(crate) const GUARD: usize = 128;

/// Space over which small copies are spread, so that a read finds no line that an earlier one left in
/// the CPU's buffers.
const SPREAD: usize = 256 << 10;

/// Most places that copies of one point are spread over.
const MAX_WINDOWS: usize = 64;

/// Reads of this size and more are one round trip apart at least, whatever is done.
const BATCHED: usize = 4096;

/// One kind of copy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Point {
    pub(crate) direction: Direction,
    pub(crate) size: usize,
    /// Bytes past a line on the device side.
    pub(crate) alignment: usize,
    /// Bytes past a line on the host side.
    pub(crate) host_alignment: usize,
}

/// The points in the order in which they are measured: sizes ascend innermost.
pub(crate) fn points(options: &Options) -> Vec<Point> {
    let mut sizes: Vec<_> = options.sizes.iter().map(|bytes| bytes.0).collect();
    sizes.retain(|&size| size > 0);
    sizes.sort_unstable();
    sizes.dedup();
    let mut points = Vec::new();
    for &direction in &options.direction {
        for host_alignment in &options.host_alignments {
            for alignment in &options.alignments {
                points.extend(sizes.iter().map(|&size| Point {
                    direction,
                    size,
                    alignment: alignment.0 % LINE,
                    host_alignment: host_alignment.0 % LINE,
                }));
            }
        }
    }
    points
}

impl Point {
    /// Cache lines of the device memory that it touches.
    pub(crate) fn lines(&self) -> usize {
        (self.alignment + self.size).div_ceil(LINE)
    }

    /// Round trips that a read takes at least: 16 lines can be under way at a time.
    pub(crate) fn round_trips(&self) -> usize {
        floor::round_trips(self.lines())
    }

    fn stride(&self) -> usize {
        (self.alignment + self.size + 2 * GUARD).next_multiple_of(LINE)
    }

    /// Places in the device buffer that its copies take in turn; their guards do not overlap.
    pub(crate) fn windows(&self) -> usize {
        (SPREAD / self.stride()).clamp(1, MAX_WINDOWS)
    }

    /// Where its `index`th copy is in the device buffer.
    pub(crate) fn device_offset(&self, index: usize) -> usize {
        GUARD + self.stride() * (index % self.windows()) + self.alignment
    }

    /// Where its copies are in the host buffer.
    pub(crate) fn host_offset(&self) -> usize {
        GUARD + self.host_alignment
    }

    /// Calls timed together. A store is done sooner than one can look at the clock, a read never.
    pub(crate) fn batch(&self) -> usize {
        match self.direction {
            Direction::To if self.size <= BATCHED => 16,
            _ => 1,
        }
    }

    /// Bytes that the host buffer needs.
    pub(crate) fn host_len(&self) -> usize {
        self.host_offset() + self.size + GUARD
    }

    /// Bytes that the device buffer needs.
    pub(crate) fn device_len(&self) -> usize {
        self.device_offset(self.windows() - 1) + self.size + GUARD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(size: usize, alignment: usize) -> Point {
        Point {
            direction: Direction::From,
            size,
            alignment,
            host_alignment: 0,
        }
    }

    #[test]
    fn round_trips_are_counted_in_lines_touched() {
        assert_eq!(point(1, 63).lines(), 1);
        assert_eq!(point(2, 63).lines(), 2);
        assert_eq!(point(1024, 0).round_trips(), 1);
        assert_eq!(point(1024, 1).round_trips(), 2);
        assert_eq!(point(65536, 0).round_trips(), 64);
    }

    #[test]
    fn windows_keep_their_alignment_and_do_not_touch() {
        for size in [1, 64, 1000, 4096, 65536, 1 << 20] {
            for alignment in [0, 1, 20, 63] {
                let point = point(size, alignment);
                assert!(point.windows() >= 1);
                for index in 0..point.windows() {
                    assert_eq!(point.device_offset(index) % LINE, alignment);
                }
                if point.windows() > 1 {
                    let gap = point.device_offset(1) - (point.device_offset(0) + size);
                    assert!(gap >= 2 * GUARD);
                }
                assert!(point.device_len() <= (2 * SPREAD).max(size + 4 * GUARD));
            }
        }
        assert_eq!(point(4, 0).windows(), MAX_WINDOWS);
        assert_eq!(point(1 << 20, 0).windows(), 1);
    }
}
