//! The host memory that calls write to.

use gdrcopy::Result;

use crate::isolated::outcome;
use crate::model::noise;

/// Bytes before and behind every buffer, at least.
const GUARD: usize = 4096;

/// A buffer in which calls get a part each. All others of its bytes never change.
pub(crate) struct Host {
    bytes: Vec<u8>,
    model: Vec<u8>,
}

impl Host {
    /// One that has room for reads of `room` bytes.
    pub(crate) fn new(room: usize) -> Host {
        let bytes = noise(1, room + 2 * GUARD);
        let model = bytes.clone();
        Host { bytes, model }
    }

    pub(crate) fn room(&self) -> usize {
        self.bytes.len() - 2 * GUARD
    }

    /// Has bytes of it written, in places of these lengths, by a call that should find `found` there, or fail and write
    /// nothing. The first place is this many bytes behind the guard.
    #[track_caller]
    pub(crate) fn receive(
        &mut self,
        skipped: usize,
        lens: &[usize],
        found: Option<Vec<Vec<u8>>>,
        read: impl FnOnce(Vec<&mut [u8]>) -> Result<()>,
    ) {
        // A byte lies between any two.
        let (mut rest, mut places) = (&mut self.bytes[GUARD + skipped..], Vec::new());
        for &len in lens {
            let (place, after) = rest.split_at_mut(len);
            places.push(place);
            rest = &mut after[1..];
        }
        outcome(found.is_some(), read(places));
        let mut start = GUARD + skipped;
        for bytes in found.into_iter().flatten() {
            self.model[start..start + bytes.len()].copy_from_slice(&bytes);
            start += bytes.len() + 1;
        }
        self.check();
    }

    #[track_caller]
    fn check(&self) {
        if self.bytes != self.model {
            let mut pairs = self.bytes.iter().zip(&self.model);
            let first = pairs.position(|(found, model)| found != model);
            panic!("host memory differs from byte {first:?} on");
        }
    }
}
