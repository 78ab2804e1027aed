//! Verifies copied bytes, and the bytes around them, in the host buffer and the GPU buffer. CUDA reads the GPU buffer.
#![forbid(unsafe_code)]

use anyhow::Result;

use super::clock::Clock;
use super::method::Method;
use super::plan::{Direction, GUARD, Point};
use crate::cuda::PinnedBuffer;

/// The value of each byte of the host buffer before a read.
const POISON: u8 = 0xee;

/// The contents of the host and GPU buffers before the copies of a [`Point`], and the contents expected after them.
#[derive(Debug)]
pub(crate) struct Verifier {
    point: Point,
    /// The contents of the host buffer before writes.
    source: Vec<u8>,
    /// The contents of the GPU buffer before the copies.
    device: Vec<u8>,
    /// The contents that the GPU buffer must have after writes to all windows, the ranges that copies use.
    written: Vec<u8>,
    /// The contents of the GPU buffer after the copies, as CUDA has read them.
    seen: Vec<u8>,
}

impl Verifier {
    /// Makes a verifier for GPU buffers of `buffer_len` bytes.
    pub(crate) fn new(point: Point, buffer_len: usize) -> Verifier {
        let len = point.device_len().min(buffer_len);
        let source = pattern(point.host_len(), 2);
        let device = pattern(len, 1);
        let mut written = device.clone();
        for index in 0..point.windows {
            written[point.device_offset(index)..][..point.size].copy_from_slice(&source[GUARD..][..point.size]);
        }
        Verifier { point, source, device, written, seen: vec![0; len] }
    }

    pub(crate) fn fill_device(&self, method: &Method) -> Result<()> {
        method.buffer.write(&self.device)
    }

    /// Copies once to or from each of the first `windows` windows (ranges of the GPU buffer), and describes the first
    /// wrong byte, if any. Checks the host buffer after each copy, and the GPU buffer after all copies.
    pub(crate) fn check(
        &mut self,
        windows: usize,
        method: &Method,
        host: &mut PinnedBuffer,
        clock: &Clock,
    ) -> Result<Option<String>> {
        for index in 0..windows {
            self.fill_host(host);
            method.time(&self.point, index, 1, host, clock)?;
            let wrong = self.wrong_in_host(index, host);
            if wrong.is_some() {
                return Ok(wrong);
            }
        }
        method.buffer.read(&mut self.seen)?;
        let expected = match self.point.direction {
            Direction::Write => &self.written,
            Direction::Read => &self.device,
        };
        Ok(difference(&self.seen, expected, "device byte"))
    }

    pub(crate) fn fill_host(&self, host: &mut PinnedBuffer) {
        let host = &mut host.as_mut_slice()[..self.point.host_len()];
        match self.point.direction {
            Direction::Write => host.copy_from_slice(&self.source),
            Direction::Read => host.fill(POISON),
        }
    }

    /// Describes the first wrong byte in the whole host buffer, if any, after a copy from or to the window `index`.
    fn wrong_in_host(&self, index: usize, host: &PinnedBuffer) -> Option<String> {
        let mut expected = self.source.clone();
        if self.point.direction == Direction::Read {
            expected.fill(POISON);
            let size = self.point.size;
            expected[GUARD..][..size].copy_from_slice(&self.device[self.point.device_offset(index)..][..size]);
        }
        difference(&host.as_slice()[..expected.len()], &expected, "host byte")
    }
}

/// Describes the first byte that differs, if one does. `name` says what the bytes are.
pub(crate) fn difference(seen: &[u8], expected: &[u8], name: &str) -> Option<String> {
    // Comparing whole slices is fast; the slow search runs only where they differ.
    if seen == expected {
        return None;
    }
    let mut at = 0;
    while seen[at] == expected[at] {
        at += 1;
    }
    Some(format!("{name} {at} is {:#04x}, not {:#04x}", seen[at], expected[at]))
}

/// Returns bytes that look random, and that depend on the seed.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len.next_multiple_of(8)];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for word in bytes.chunks_exact_mut(8) {
        // This is an xorshift generator.
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
        let wrong = difference(&[1, 9, 9], &[1, 2, 3], "byte").unwrap();
        assert_eq!(wrong, "byte 1 is 0x09, not 0x02");
    }

    #[test]
    fn patterns_differ_by_place_and_seed() {
        let first = pattern(4099, 1);
        let second = pattern(4099, 2);
        assert_eq!(first.len(), 4099);
        for other in [&second, &first[64..]] {
            let equal = first.iter().zip(other).filter(|(one, other)| one == other);
            assert!(equal.count() < 64);
        }
    }
}
