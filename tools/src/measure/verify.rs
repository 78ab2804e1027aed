//! Compares every byte of a copy, and the bytes around it, with CUDA's view.
#![forbid(unsafe_code)]

use anyhow::Result;

use super::clock::Clock;
use super::method::Method;
use super::plan::{Direction, GUARD, Point};
use crate::cuda::PinnedBuffer;

/// The contents of host memory before a read.
const POISON: u8 = 0xee;

/// The contents of both sides before the copies of a point, and after them.
#[derive(Debug)]
pub(crate) struct Verifier {
    point: Point,
    /// The GPU buffer before the copies.
    device: Vec<u8>,
    /// The host buffer before writes.
    source: Vec<u8>,
    /// Room for CUDA's view of the GPU buffer.
    seen: Vec<u8>,
}

impl Verifier {
    /// For GPU buffers of `buffer_len` bytes.
    pub(crate) fn new(point: Point, buffer_len: usize) -> Verifier {
        let len = point.device_len().min(buffer_len);
        Verifier { point, device: pattern(len, 1), source: pattern(point.host_len(), 2), seen: vec![0; len] }
    }

    /// Copies once to or from each window, and returns what is wrong with the copies.
    pub(crate) fn check(&mut self, method: &Method, host: &mut PinnedBuffer, clock: &Clock) -> Result<Option<String>> {
        method.buffer.write(&self.device)?;
        match self.point.direction {
            Direction::Write => {
                self.fill_host(host);
                for index in 0..self.point.windows() {
                    method.time(&self.point, index, 1, host, clock)?;
                }
                self.check_writes(method)
            }
            Direction::Read => {
                for index in 0..self.point.windows() {
                    let wrong = self.check_read(method, index, host, clock)?;
                    if wrong.is_some() {
                        return Ok(wrong);
                    }
                }
                Ok(None)
            }
        }
    }

    /// Returns the errors after copies that were timed, with all writes, or with one more read.
    pub(crate) fn check_again(
        &mut self,
        method: &Method,
        host: &mut PinnedBuffer,
        clock: &Clock,
    ) -> Result<Option<String>> {
        match self.point.direction {
            Direction::Write => self.check_writes(method),
            Direction::Read => self.check_read(method, 0, host, clock),
        }
    }

    pub(crate) fn fill_host(&self, host: &mut PinnedBuffer) {
        let host = &mut host.as_mut_slice()[..self.point.host_len()];
        match self.point.direction {
            Direction::Write => host.copy_from_slice(&self.source),
            Direction::Read => host.fill(POISON),
        }
    }

    /// The errors in the GPU buffer after writes to all windows.
    fn check_writes(&mut self, method: &Method) -> Result<Option<String>> {
        method.buffer.read(&mut self.seen)?;
        let point = self.point;
        let source = &self.source[point.host_offset()..][..point.size];
        let mut untouched_from = 0;
        for index in 0..point.windows() {
            let at = point.device_offset(index);
            let before = self.check_untouched(untouched_from..at);
            let copied = difference(&self.seen[at..][..point.size], source, "device byte");
            if before.is_some() || copied.is_some() {
                return Ok(before.or(copied));
            }
            untouched_from = at + point.size;
        }
        Ok(self.check_untouched(untouched_from..self.device.len()))
    }

    /// The errors in bytes of the GPU buffer that no copy may touch.
    fn check_untouched(&self, range: std::ops::Range<usize>) -> Option<String> {
        difference(&self.seen[range.clone()], &self.device[range], "device byte outside the copy,")
    }

    /// Reads the window of this index. What is wrong on the host side?
    fn check_read(
        &self,
        method: &Method,
        index: usize,
        host: &mut PinnedBuffer,
        clock: &Clock,
    ) -> Result<Option<String>> {
        self.fill_host(host);
        let point = self.point;
        let at = point.host_offset();
        method.time(&point, index, 1, host, clock)?;
        let (before, rest) = host.as_slice()[..point.host_len()].split_at(at);
        let (copied, after) = rest.split_at(point.size);
        let source = &self.device[point.device_offset(index)..][..point.size];
        let poison = vec![POISON; at];
        for (seen, expected, name) in [
            (copied, source, "host byte"),
            (before, &poison[..], "host byte before the copy,"),
            (after, &poison[..GUARD], "host byte after the copy,"),
        ] {
            let wrong = difference(seen, expected, name);
            if wrong.is_some() {
                return Ok(wrong);
            }
        }
        Ok(None)
    }
}

/// Describes the first byte that differs; `name` is that of the bytes.
pub(crate) fn difference(seen: &[u8], expected: &[u8], name: &str) -> Option<String> {
    // Comparing whole slices is fast; the slow search runs only where they differ.
    if seen == expected {
        return None;
    }
    let at = (0..seen.len()).find(|&at| seen[at] != expected[at])?;
    Some(format!("{name} {at} is {:#04x}, not {:#04x}", seen[at], expected[at]))
}

/// Bytes that differ from their neighbors, and from those of another seed.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len.next_multiple_of(8)];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for word in bytes.chunks_exact_mut(8) {
        // An xorshift generator.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_describes_the_first_wrong_byte() {
        assert_eq!(difference(&[1, 2], &[1, 2], "byte"), None);
        let found = difference(&[1, 9, 9], &[1, 2, 3], "byte").unwrap();
        assert_eq!(found, "byte 1 is 0x09, not 0x02");
    }

    #[test]
    fn patterns_differ_by_place_and_seed() {
        let (a, b) = (pattern(4099, 1), pattern(4099, 2));
        assert_eq!(a.len(), 4099);
        let equal = |(x, y): (&u8, &u8)| usize::from(x == y);
        assert!(a.iter().zip(&b).map(equal).sum::<usize>() < 64);
        assert!(a.iter().zip(&a[64..]).map(equal).sum::<usize>() < 64);
    }
}
