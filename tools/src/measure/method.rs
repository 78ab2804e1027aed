//! Methods to copy to and from GPU memory: the functions of a libgdrapi, memcpy on its mapping, and CUDA's own copies.

use std::ffi::c_int;
use std::sync::atomic::{Ordering, fence};

use anyhow::{Context, Error, Result, anyhow, ensure};
use clap::ValueEnum;
use nix::errno::Errno;

use super::clock::Clock;
use super::options::SharedOptions;
use super::plan::{BATCH, Direction, GUARD, LINE, Point};
use super::stats::Times;
use crate::cuda::{CudaError, DeviceBuffer, Gpu, PinnedBuffer};
use crate::libgdrapi::{CallError, Library, Mapped};

const LOADS: usize = 501;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// The copy functions of a libgdrapi
    #[value(skip)]
    Library,
    /// The C library's memcpy on the mapping
    Memcpy,
    /// cuMemcpyHtoD and cuMemcpyDtoH, from and to pinned memory
    #[value(name = "cumemcpy")]
    CuMemcpy,
}

/// A method to copy, with a buffer of its own that a library has pinned and mapped.
#[derive(Debug)]
pub(crate) struct Method {
    kind: Kind,
    pub(crate) label: String,
    pub(crate) library: &'static Library,
    /// The buffer as the CPU sees it.
    pub(crate) mapped: Mapped,
    /// The buffer as CUDA sees it.
    pub(crate) buffer: DeviceBuffer,
}

impl Method {
    /// Allocates at least `len` bytes, and pins and maps them with the library. Errors say what to do.
    pub(crate) fn new(
        kind: Kind,
        label: &str,
        library: &'static Library,
        gpu: &'static Gpu,
        options: &SharedOptions,
        len: usize,
    ) -> Result<Method> {
        let buffer = DeviceBuffer::alloc(gpu, options.memory, len)?;
        let mapped = Mapped::new(library, &buffer, options.mapping);
        let mapped = mapped.map_err(explain).with_context(|| label.to_owned())?;
        Ok(Method { kind, label: label.into(), library, mapped, buffer })
    }

    pub(crate) fn function(&self, direction: Direction) -> &'static str {
        match (self.kind, direction) {
            (Kind::Library, Direction::Write) => "gdr_copy_to_mapping",
            (Kind::Library, Direction::Read) => "gdr_copy_from_mapping",
            (Kind::Memcpy, _) => "memcpy",
            (Kind::CuMemcpy, Direction::Write) => "cuMemcpyHtoD",
            (Kind::CuMemcpy, Direction::Read) => "cuMemcpyDtoH",
        }
    }

    /// Waits until all earlier writes have left the CPU, so that the times of this method do not include the writes of
    /// another method.
    pub(crate) fn drain(&self) {
        fence(Ordering::SeqCst);
        // SAFETY: the word is aligned, and lies in the mapping. The read waits for all earlier writes, and the clock
        // waits for the read.
        unsafe { self.mapped.at(0).cast::<u32>().read_volatile() };
    }

    /// Returns the nanoseconds of plain 4-byte loads from the mapping, each from another cache line.
    ///
    /// Sometimes loads take a tenth longer for a while. So callers measure before and after the copies, and use the
    /// shorter times.
    pub(crate) fn loads(&self, clock: &Clock) -> Times {
        let lines = (self.mapped.len() / LINE).min(LOADS);
        let words = (0..lines).map(|line| self.mapped.at(line * LINE).cast::<u32>());
        let times = words.map(|word| {
            assert!(word.is_aligned());
            // SAFETY: the word is aligned, and lies in the mapping.
            clock.time(|| unsafe {
                word.read_volatile();
            })
        });
        Times::new(times.collect())
    }

    /// Makes `calls` copies, and returns how many nanoseconds all of them take. The first copy has the index
    /// `first`, which determines its offset in the buffer. After [`BATCH`] copies, the same offsets are used again.
    pub(crate) fn time(
        &self,
        point: &Point,
        first: usize,
        calls: usize,
        host: &mut PinnedBuffer,
        clock: &Clock,
    ) -> Result<f64> {
        let size = point.size;
        let host = host.as_mut_slice()[GUARD..][..size].as_mut_ptr();
        let offsets: [usize; BATCH] = std::array::from_fn(|i| point.device_offset(first + i));
        assert!(offsets.iter().all(|at| at + size <= self.buffer.len()));
        let device = offsets.map(|at| self.mapped.at(at));
        let handle = self.mapped.handle();
        let (ns, result) = match (self.kind, point.direction) {
            (Kind::Library, Direction::Write) => {
                let write = self.mapped.copy_to();
                timed(clock, calls, |i| {
                    // SAFETY: `size` bytes are mapped at each address and readable at `host`: both were checked above.
                    unsafe { write(handle, device[i].cast(), host.cast(), size) }
                })
            }
            (Kind::Library, Direction::Read) => {
                let read = self.mapped.copy_from();
                timed(clock, calls, |i| {
                    // SAFETY: `size` bytes are mapped at each address and writable at `host`, a mutable borrow.
                    unsafe { read(handle, host.cast(), device[i].cast(), size) }
                })
            }
            (Kind::Memcpy, Direction::Write) => timed(clock, calls, |i| {
                // SAFETY: `size` bytes are mapped at each `device[i]`; those at `host` are readable, and elsewhere.
                unsafe { device[i].copy_from_nonoverlapping(host, size) };
                store_fence();
                0
            }),
            (Kind::Memcpy, Direction::Read) => timed(clock, calls, |i| {
                // SAFETY: `size` bytes are mapped at each address and writable at `host`, and the two do not overlap.
                unsafe { host.copy_from_nonoverlapping(device[i], size) };
                0
            }),
            (Kind::CuMemcpy, Direction::Write) => timed(clock, calls, |i| {
                // SAFETY: `size` bytes are readable at `host`.
                code(unsafe { self.buffer.copy_in(host, offsets[i], size) })
            }),
            (Kind::CuMemcpy, Direction::Read) => timed(clock, calls, |i| {
                // SAFETY: `size` bytes are writable at `host`.
                code(unsafe { self.buffer.copy_out(host, offsets[i], size) })
            }),
        };
        let function = self.function(point.direction);
        match self.kind {
            Kind::CuMemcpy => ensure!(result == 0, "{function}: error {result}"),
            _ => ensure!(result == 0, "{function}: {}", Errno::from_raw(result)),
        }
        Ok(ns)
    }
}

/// Makes the calls. Returns the nanoseconds of all calls together, and a number that is 0 if all of them succeeded.
#[inline(always)]
fn timed(clock: &Clock, calls: usize, call: impl Fn(usize) -> c_int) -> (f64, c_int) {
    let mut results = 0;
    let ns = clock.time(|| {
        for i in 0..calls {
            results |= call(i % BATCH);
        }
    });
    (ns, results)
}

/// Returns the number of a result, which is 0 for success.
fn code(result: Result<(), CudaError>) -> c_int {
    match result {
        Ok(_) => 0,
        Err(error) => error.code,
    }
}

/// Pushes out the stores of memcpy, which could otherwise stay in the CPU's write-combining buffers.
#[inline(always)]
fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SFENCE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    fence(Ordering::SeqCst);
}

/// Adds advice to the error of a pin or map.
fn explain(error: Error) -> Error {
    let Some(&CallError { call, errno }) = error.downcast_ref() else {
        return error;
    };
    let advice = match (call, errno) {
        ("gdr_pin_buffer", Errno::EINVAL) => {
            "This memory cannot be pinned. Try the other of -a cuMemAlloc and -a cuMemCreate"
        }
        ("gdr_pin_buffer", Errno::ENOMEM) => {
            "The GPU's BAR1 has no room left. Use a smaller -s, or end programs that hold pins"
        }
        ("gdr_pin_buffer", Errno::EMFILE) => "No file descriptor is left. Raise `ulimit -n`",
        ("gdr_pin_buffer", Errno::EOPNOTSUPP) => "This GPU or its driver does not support pinning its memory",
        ("gdr_map_v2", Errno::ENOSYS) => "This library is older than mapping types. Leave out -M",
        ("gdr_map_v2", Errno::EOPNOTSUPP) => "This system does not support this mapping type. Leave out -M",
        _ => "GDRCOPY_ENABLE_LOGGING=1 logs the reason",
    };
    anyhow!("{error:#}. {advice}. Run `gdrcopy doctor` for details")
}
