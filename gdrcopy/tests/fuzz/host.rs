//! The host memory that calls write to.

use std::ffi::{c_int, c_uint};

use gdrcopy::Result;

use crate::cuda::Cuda;
use crate::isolated::outcome;
use crate::memory::noise;

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

    /// Registers the middle of it with CUDA, whose copy engine then accesses it.
    pub(crate) fn register(&mut self, cuda: &Cuda) {
        let start = self.bytes.as_mut_ptr();
        let first = start.align_offset(4096) + 65536;
        let len = (self.bytes.len() - first) / 2 / 4096 * 4096;
        // SAFETY: the signature is CUDA's; the buffer lives until the process ends, or its only sequence has failed.
        unsafe {
            cuda.call::<extern "C" fn(*mut u8, usize, c_uint) -> c_int>("cuMemHostRegister_v2", |f| {
                f(start.wrapping_add(first), len, 0)
            });
        }
    }

    /// Has `len` bytes of it written by a call that should find `found` there, or fail and write nothing.
    #[track_caller]
    pub(crate) fn receive<T>(
        &mut self,
        place: u64,
        len: usize,
        found: Option<Vec<u8>>,
        read: impl FnOnce(&mut [u8]) -> Result<T>,
    ) {
        assert!(len <= self.room());
        let start = GUARD + place as usize % (self.room() - len + 1);
        let part = start..start + len;
        outcome(found.is_some(), read(&mut self.bytes[part.clone()]));
        if let Some(found) = found {
            self.model[part].copy_from_slice(&found);
        }
        self.check();
    }

    /// [`Host::receive`] for calls that write to many places, of these lengths.
    #[track_caller]
    pub(crate) fn receive_many(
        &mut self,
        lens: &[usize],
        found: Option<Vec<Vec<u8>>>,
        read: impl FnOnce(Vec<&mut [u8]>) -> Result<()>,
    ) {
        // A byte lies between any two.
        let (mut rest, mut places) = (&mut self.bytes[GUARD..], Vec::new());
        for &len in lens {
            let (place, after) = rest.split_at_mut(len);
            places.push(place);
            rest = &mut after[1..];
        }
        outcome(found.is_some(), read(places));
        let mut start = GUARD;
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
