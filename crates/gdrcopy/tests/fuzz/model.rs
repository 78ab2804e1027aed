//! The model of GPU memory, which contains the expected value of every byte.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::cuda::Cuda;
use crate::sizes::Numbers;

/// The number of bytes that are read back from the GPU at a time. It is small, so that the heap reuses the buffer for
/// each read instead of mapping new memory.
const PIECE: usize = 64 << 10;

/// The expected bytes of regions of GPU memory.
#[derive(Clone)]
pub(crate) struct Memory {
    regions: Arc<Mutex<Vec<Region>>>,
    cuda: Arc<Cuda>,
}

struct Region {
    start: u64,
    bytes: Vec<u8>,
    /// The part of the region that was given to the library, which may not change the bytes around it.
    given: Range<u64>,
    /// The number of the pool that uses the memory, at least 1. Memory that was passed to `Gdr::map_owned` has a number
    /// that no pool has. Memory of which tests pin parts (the arena) has 0.
    pool: usize,
}

/// Returns bytes that look random. The same seed gives the same bytes.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    let mut bytes: Vec<u8> = (0..len.min(4099)).map(|_| numbers.next() as u8).collect();
    while bytes.len() < len {
        bytes.extend_from_within(..bytes.len().min(len - bytes.len()));
    }
    bytes
}

/// Keeps a region in the model. Dropping this struct checks the region's bytes and removes the region. Owners of memory
/// have this struct as a field before the memory, so that the memory still exists during the check.
#[derive(Debug)]
pub(crate) struct Entry {
    memory: Memory,
    start: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut regions = self.memory.regions();
        let mut starts = regions.iter().map(|region| region.start);
        let index = starts.position(|start| start == self.start);
        let region = regions.swap_remove(index.expect("added before"));
        drop(regions);
        // If the check failed while another panic unwinds, the process would end before it reports that panic.
        if !thread::panicking() {
            self.memory.check_region(&region);
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the model")
    }
}

impl Memory {
    pub(crate) fn new(cuda: &Arc<Cuda>) -> Memory {
        Memory { regions: Arc::default(), cuda: Arc::clone(cuda) }
    }

    /// Fills GPU memory, and adds it to the model. Dropping the result removes it. The library may use only `given`.
    pub(crate) fn add(&self, start: u64, len: usize, given: Range<u64>, pool: usize) -> Entry {
        let bytes = noise(start ^ given.start, len);
        self.cuda.write(start, &bytes);
        self.regions().push(Region { start, bytes, given, pool });
        let memory = self.clone();
        Entry { memory, start }
    }

    /// Returns whether all of the range is memory that was given to the pool with this number.
    pub(crate) fn is_of_pool(&self, range: &Range<u64>, pool: usize) -> bool {
        let regions = self.regions();
        let mut regions_of_pool = regions.iter().filter(|region| region.pool == pool);
        regions_of_pool.any(|region| region.given.start <= range.start && range.end <= region.given.end)
    }

    /// Calls `change` with the expected bytes of a range. `change` may also modify what is expected there.
    #[track_caller]
    pub(crate) fn with<R>(&self, start: u64, len: usize, change: impl FnOnce(&mut [u8]) -> R) -> R {
        for region in self.regions().iter_mut() {
            let offset = start.wrapping_sub(region.start) as usize;
            let Some(end) = offset.checked_add(len) else {
                continue;
            };
            if let Some(part) = region.bytes.get_mut(offset..end) {
                return change(part);
            }
        }
        panic!("{len} bytes at {start:#x} are not the program's");
    }

    /// Returns the expected bytes of a range.
    #[track_caller]
    pub(crate) fn bytes(&self, start: u64, len: usize) -> Vec<u8> {
        self.with(start, len, |model| model.to_vec())
    }

    /// Changes the expected bytes as a write of the library changes memory.
    #[track_caller]
    pub(crate) fn set(&self, start: u64, bytes: &[u8]) {
        self.with(start, bytes.len(), |model| model.copy_from_slice(bytes));
    }

    /// Compares all GPU memory with the expected bytes.
    pub(crate) fn check(&self) {
        self.regions().iter().for_each(|region| self.check_region(region));
    }

    fn check_region(&self, region: &Region) {
        // A batch that was leaked by `mem::forget` has made no fence after its stores. This fence takes the place of
        // the missing one.
        fence(Ordering::SeqCst);
        for (number, bytes) in region.bytes.chunks(PIECE).enumerate() {
            let start = region.start + (number * PIECE) as u64;
            let stored = self.cuda.read(start, bytes.len());
            if stored == bytes {
                continue;
            }
            let wrong: Vec<usize> = (0..stored.len()).filter(|&at| stored[at] != bytes[at]).collect();
            let first = wrong[0];
            let last = wrong[wrong.len() - 1];
            panic!(
                "{} bytes are not as in the model: from {:#x} ({:#x} in place of {:#x}) to {:#x}, in memory of which \
                 pools have {:#x?}",
                wrong.len(),
                start + first as u64,
                stored[first],
                bytes[first],
                start + last as u64,
                region.given,
            );
        }
    }

    fn regions(&self) -> MutexGuard<'_, Vec<Region>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
