//! The memory that the CPU and the GPU share: two flags and the data. Each of them is in GPU memory or in host memory.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use anyhow::Result;

use super::options::{Exchange, Place};
use crate::cuda::{DeviceBuffer, GPU_PAGE, Gpu, Memory, PinnedBuffer};
use crate::measure::method::Method;

/// The offset of the flag that the CPU sets and the GPU polls. Offsets are the same in GPU memory and in host memory.
const REQUEST: usize = 0;
/// The offset of the flag that the GPU sets and the CPU polls.
const ANSWER: usize = 4096;
/// The offset of the word that stops the GPU kernel.
const STOP: usize = 8192;
/// The offset of the data.
const DATA: usize = GPU_PAGE;

/// Returns the number of bytes of GPU memory that are needed for data of this size.
pub(super) fn gpu_bytes(size: usize) -> usize {
    DATA + size.next_multiple_of(4)
}

/// The memory of the flags and the data. If a part is GPU memory, the CPU accesses it through the library of `method`.
#[derive(Debug)]
pub(super) struct Buffers<'a> {
    exchange: &'a Exchange,
    method: &'a Method,
    /// Host memory. It always has the word that stops the GPU kernel, because stopping must not depend on the library.
    host: PinnedBuffer,
    counters: DeviceBuffer,
}

impl<'a> Buffers<'a> {
    pub(super) fn new(gpu: &'static Gpu, method: &'a Method, exchange: &'a Exchange) -> Result<Self> {
        let data = match exchange.data {
            Place::GpuMem => 0,
            Place::HostMem => exchange.size.0.next_multiple_of(4),
        };
        Ok(Buffers {
            exchange,
            method,
            host: PinnedBuffer::alloc(DATA + data)?,
            counters: DeviceBuffer::alloc(gpu, Memory::Alloc, GPU_PAGE)?,
        })
    }

    /// Clears flags and counters. The GPU kernel must not be running.
    pub(super) fn clear(&self) -> Result<()> {
        for word in [REQUEST, ANSWER, STOP] {
            self.word(word).store(0, Ordering::Relaxed);
        }
        self.method.buffer.fill(0, DATA)?;
        Ok(self.counters.fill(0, GPU_PAGE)?)
    }

    // ---- The CPU's side ----

    /// Writes the number of this round to the flag that the GPU polls. Earlier writes become visible before this one.
    pub(super) fn request(&self, round: u32) -> Result<()> {
        match self.exchange.gpu_flag {
            Place::GpuMem => self.method.mapped.write(REQUEST, &round.to_ne_bytes())?,
            Place::HostMem => self.word(REQUEST).store(round, Ordering::Release),
        }
        Ok(())
    }

    /// Returns the last round that the GPU has answered.
    pub(super) fn answer(&self) -> Result<u32> {
        match self.exchange.cpu_flag {
            Place::GpuMem => {
                let mut round = [0; 4];
                self.method.mapped.read(ANSWER, &mut round)?;
                Ok(u32::from_ne_bytes(round))
            }
            Place::HostMem => Ok(self.word(ANSWER).load(Ordering::Acquire)),
        }
    }

    pub(super) fn write_data(&self, data: &[u8]) -> Result<()> {
        match self.exchange.data {
            Place::GpuMem if data.is_empty() => {}
            Place::GpuMem => self.method.mapped.write(DATA, data)?,
            Place::HostMem => {
                assert!(DATA + data.len() <= self.host.len);
                // SAFETY: the bytes are inside the buffer. The GPU does not read them before the next flag is set.
                unsafe { self.host.as_mut_ptr().add(DATA).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
                fence(Ordering::Release);
            }
        }
        Ok(())
    }

    pub(super) fn read_data(&self, data: &mut [u8]) -> Result<()> {
        match self.exchange.data {
            Place::GpuMem if data.is_empty() => {}
            Place::GpuMem => self.method.mapped.read(DATA, data)?,
            Place::HostMem => {
                assert!(DATA + data.len() <= self.host.len);
                fence(Ordering::Acquire);
                // SAFETY: the bytes are inside the buffer. The GPU does not write them after it has set its flag.
                unsafe { self.host.as_mut_ptr().add(DATA).copy_to_nonoverlapping(data.as_mut_ptr(), data.len()) };
            }
        }
        Ok(())
    }

    /// Returns a word of host memory, which the GPU uses at the same time.
    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= self.host.len && offset.is_multiple_of(4));
        // SAFETY: this is an aligned word of the buffer. It lives as long as the reference, and is only accessed
        // atomically.
        unsafe { AtomicU32::from_ptr(self.host.as_mut_ptr().add(offset).cast()) }
    }

    pub(super) fn stop(&self) {
        self.word(STOP).store(1, Ordering::Release);
    }

    /// Returns how many words of data the GPU kernel found wrong. It counts them in the second of its two 32-bit
    /// counters. The GPU kernel must not be running.
    pub(super) fn wrong_on_gpu(&self) -> Result<u64> {
        let mut counters = [0; 8];
        self.counters.read(&mut counters)?;
        Ok(u64::from_le_bytes(counters) >> 32)
    }

    // ---- The GPU's side ----

    /// Returns the device addresses of the request, the answer, the data, the word that stops the GPU kernel, and its
    /// counters.
    pub(super) fn addresses(&self) -> [u64; 5] {
        let Exchange { gpu_flag, cpu_flag, data, .. } = *self.exchange;
        [
            self.on_gpu(gpu_flag, REQUEST),
            self.on_gpu(cpu_flag, ANSWER),
            self.on_gpu(data, DATA),
            self.on_gpu(Place::HostMem, STOP),
            self.counters.address(),
        ]
    }

    /// Returns the number of words of data, and a mask of the valid bits of the last word.
    pub(super) fn words(&self) -> [u32; 2] {
        let size = self.exchange.size.0;
        let bytes_missing = size.next_multiple_of(4) - size;
        [size.div_ceil(4) as u32, u32::MAX >> (8 * bytes_missing)]
    }

    fn on_gpu(&self, place: Place, offset: usize) -> u64 {
        let start = match place {
            Place::GpuMem => self.method.buffer.address(),
            Place::HostMem => self.host.as_mut_ptr() as u64,
        };
        start + offset as u64
    }
}
