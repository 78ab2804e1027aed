//! The memory that CPU and GPU share, two flags and the data, each in GPU or in host memory.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

use crate::cuda::{DeviceBuffer, GPU_PAGE, Gpu, Memory, PinnedBuffer};
use crate::measure::method::Method;

/// Offsets, the same in GPU and in host memory.
const REQUEST: usize = 0;
const ANSWER: usize = 4096;
const STOP: usize = 8192;
const DATA: usize = GPU_PAGE;

/// Offset of the GPU kernel's count of wrong words.
const WRONG: usize = 4;

/// Bytes of GPU memory needed.
pub(super) fn gpu_bytes(size: usize) -> usize {
    DATA + size.next_multiple_of(4)
}

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Place {
    /// GPU memory, which the CPU accesses through the mapping
    #[value(name = "gpumem")]
    GpuMem,
    /// Host memory, which the GPU accesses over PCIe
    #[value(name = "hostmem")]
    HostMem,
}

/// Where everything is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// The flag that the GPU waits for.
    pub(super) gpu_flag: Place,
    /// The flag that the CPU waits for.
    pub(super) cpu_flag: Place,
    pub(super) data: Place,
    /// Bytes of data.
    pub(super) size: usize,
}

/// Flags and data of one library, through which the CPU accesses those in GPU memory.
#[derive(Debug)]
pub(super) struct Buffers<'a> {
    layout: Layout,
    method: &'a Method,
    /// Also holds the word that stops the GPU kernel, which must not depend on the library.
    host: HostSide,
    /// Counters of the GPU kernel.
    counters: DeviceBuffer,
}

impl<'a> Buffers<'a> {
    pub(super) fn new(gpu: &'static Gpu, method: &'a Method, layout: Layout) -> Result<Self> {
        let data = match layout.data {
            Place::GpuMem => 0,
            Place::HostMem => layout.size.next_multiple_of(4),
        };
        Ok(Buffers {
            layout,
            method,
            host: HostSide::new(gpu, DATA + data)?,
            counters: DeviceBuffer::alloc(gpu, Memory::Alloc, GPU_PAGE)?,
        })
    }

    /// Clears flags and counters. The GPU kernel must not be running.
    pub(super) fn clear(&self) -> Result<()> {
        for word in [REQUEST, ANSWER, STOP] {
            self.host.word(word).store(0, Ordering::Relaxed);
        }
        self.method.buffer.fill(0, DATA)?;
        Ok(self.counters.fill(0, GPU_PAGE)?)
    }

    // ---- The CPU's side ----

    /// Requests this round from the GPU, after all earlier writes.
    pub(super) fn request(&self, round: u32) -> Result<()> {
        match self.layout.gpu_flag {
            Place::GpuMem => Ok(self.method.mapped.write(REQUEST, &round.to_ne_bytes())?),
            Place::HostMem => {
                self.host.word(REQUEST).store(round, Ordering::Release);
                Ok(())
            }
        }
    }

    /// The last round that the GPU has answered.
    pub(super) fn answer(&self) -> Result<u32> {
        match self.layout.cpu_flag {
            Place::GpuMem => {
                let mut round = [0; 4];
                self.method.mapped.read(ANSWER, &mut round)?;
                Ok(u32::from_ne_bytes(round))
            }
            Place::HostMem => Ok(self.host.word(ANSWER).load(Ordering::Acquire)),
        }
    }

    /// Writes the data of a round.
    pub(super) fn write_data(&self, data: &[u8]) -> Result<()> {
        match self.layout.data {
            Place::GpuMem if data.is_empty() => Ok(()),
            Place::GpuMem => Ok(self.method.mapped.write(DATA, data)?),
            Place::HostMem => {
                self.host.write(DATA, data);
                Ok(())
            }
        }
    }

    /// Reads the data of a round.
    pub(super) fn read_data(&self, data: &mut [u8]) -> Result<()> {
        match self.layout.data {
            Place::GpuMem if data.is_empty() => Ok(()),
            Place::GpuMem => Ok(self.method.mapped.read(DATA, data)?),
            Place::HostMem => {
                self.host.read(DATA, data);
                Ok(())
            }
        }
    }

    /// Stops the GPU kernel early.
    pub(super) fn stop(&self) {
        self.host.word(STOP).store(1, Ordering::Release);
    }

    /// Words of data that the GPU kernel found wrong. It must not be running.
    pub(super) fn wrong_on_gpu(&self) -> Result<u64> {
        let mut counters = [0; 8];
        self.counters.read(&mut counters)?;
        let mut wrong = [0; 4];
        wrong.copy_from_slice(&counters[WRONG..]);
        Ok(u32::from_ne_bytes(wrong).into())
    }

    // ---- The GPU's side ----

    pub(super) fn request_on_gpu(&self) -> u64 {
        self.on_gpu(self.layout.gpu_flag, REQUEST)
    }

    pub(super) fn answer_on_gpu(&self) -> u64 {
        self.on_gpu(self.layout.cpu_flag, ANSWER)
    }

    pub(super) fn data_on_gpu(&self) -> u64 {
        self.on_gpu(self.layout.data, DATA)
    }

    pub(super) fn stop_on_gpu(&self) -> u64 {
        self.on_gpu(Place::HostMem, STOP)
    }

    pub(super) fn counters_on_gpu(&self) -> u64 {
        self.counters.address()
    }

    /// Words of data; the last one may be partial.
    pub(super) fn words(&self) -> u32 {
        self.layout.size.div_ceil(4) as u32
    }

    /// The valid bits of the last word.
    pub(super) fn last_mask(&self) -> u32 {
        match self.layout.size % 4 {
            0 => u32::MAX,
            bytes => (1 << (8 * bytes)) - 1,
        }
    }

    fn on_gpu(&self, place: Place, offset: usize) -> u64 {
        let start = match place {
            Place::GpuMem => self.method.buffer.address(),
            Place::HostMem => self.host.start as u64,
        };
        start + offset as u64
    }
}

/// Host memory that the GPU uses at the same time.
#[derive(Debug)]
struct HostSide {
    start: *mut u8,
    len: usize,
    _buffer: PinnedBuffer,
}

impl HostSide {
    fn new(gpu: &'static Gpu, len: usize) -> Result<HostSide> {
        let mut buffer = PinnedBuffer::alloc(gpu, len)?;
        Ok(HostSide { start: buffer.as_mut_ptr(), len, _buffer: buffer })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= self.len && offset.is_multiple_of(4));
        // SAFETY: an aligned word of the buffer, which lives as long as the reference, and which is
        // only accessed atomically.
        unsafe { AtomicU32::from_ptr(self.start.add(offset).cast()) }
    }

    fn write(&self, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= self.len);
        // SAFETY: inside the buffer. The GPU does not read before the next flag is set.
        unsafe { self.start.add(offset).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        fence(Ordering::Release);
    }

    fn read(&self, offset: usize, data: &mut [u8]) {
        assert!(offset + data.len() <= self.len);
        fence(Ordering::Acquire);
        // SAFETY: inside the buffer. The GPU does not write after it has set its flag.
        unsafe { self.start.add(offset).copy_to_nonoverlapping(data.as_mut_ptr(), data.len()) };
    }
}
