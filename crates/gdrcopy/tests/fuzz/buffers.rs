//! The host memory that calls write to.

use gdrcopy::Result;

use crate::isolated::outcome;
use crate::model::noise;

/// Before and after the places that a call may write, at least this many bytes are checked: they must not change.
const GUARD: usize = 4096;

/// Host memory for calls that read GPU memory. Each call may write some places in it, and must not change other bytes.
pub(crate) struct Host {
    bytes: Vec<u8>,
    model: Vec<u8>,
}

impl Host {
    /// Allocates host memory with room for reads of `room` bytes.
    pub(crate) fn new(room: usize) -> Host {
        let bytes = noise(1, room + 2 * GUARD);
        let model = bytes.clone();
        Host { bytes, model }
    }

    pub(crate) fn room(&self) -> usize {
        self.bytes.len() - 2 * GUARD
    }

    /// Calls `read` with places of these lengths, and checks that it writes the expected bytes there. If `expected` is
    /// `None`, `read` must fail and write nothing. `GUARD + skipped` bytes lie before the first place.
    #[track_caller]
    pub(crate) fn receive(
        &mut self,
        skipped: usize,
        lens: &[usize],
        expected: Option<Vec<Vec<u8>>>,
        read: impl FnOnce(Vec<&mut [u8]>) -> Result<()>,
    ) {
        let mut rest = &mut self.bytes[GUARD + skipped..];
        let mut places = Vec::new();
        // One byte that must not change separates two places.
        for &len in lens {
            let (place, after) = rest.split_at_mut(len);
            places.push(place);
            rest = &mut after[1..];
        }
        outcome(expected.is_some(), read(places));
        let mut start = GUARD + skipped;
        for bytes in expected.unwrap_or_default() {
            self.model[start..start + bytes.len()].copy_from_slice(&bytes);
            start += bytes.len() + 1;
        }
        self.check();
    }

    #[track_caller]
    fn check(&self) {
        if self.bytes != self.model {
            let first = (0..self.bytes.len()).find(|&at| self.bytes[at] != self.model[at]);
            panic!("host memory differs from byte {first:?} on");
        }
    }
}
