//! The copy engine: streams of its own, with page-locked buffers.

use std::ffi::{c_uint, c_void};
use std::mem::ManuallyDrop;
use std::ops::{Range, RangeInclusive};
use std::ptr;
use std::time::{Duration, Instant};

use memmap2::{Advice, MmapMut, MmapOptions};
use nix::errno::Errno;

use super::Driver;
use super::context::Home;
use crate::error::{Call, Error, Result};

/// CUresults.
const NOT_READY: c_uint = 600;
/// The thread is in a host callback.
const NOT_PERMITTED: c_uint = 800;
/// The thread, or the stream, is capturing.
const CAPTURE_ERRORS: RangeInclusive<c_uint> = 900..=908;

/// Flag of cuStreamCreate: neither waits for the default stream nor holds it up.
const NON_BLOCKING: c_uint = 1;

/// Flag of cuMemHostRegister: page-locked for all contexts.
const PORTABLE: c_uint = 1;

/// While one chunk is copied between the buffer and the caller's memory, the GPU copies the other one.
const LANES: usize = 2;

/// How long a waiting thread keeps its CPU before it offers it to others between queries: some 50 MiB by PCIe.
const EAGER: Duration = Duration::from_millis(1);

/// A stream, and whether the GPU may still access the part of the buffer that belongs to it.
#[derive(Debug)]
struct Lane {
    stream: *mut c_void,
    in_flight: bool,
}

/// Copies between a GPU's memory and host memory, by CUDA's copy engine.
///
/// The buffer is this library's memory, registered with CUDA, rather than CUDA's: it stays mapped even if the
/// program destroys the context.
#[derive(Debug)]
pub(crate) struct CopyEngine {
    home: Home,
    lanes: [Lane; LANES],
    /// `LANES` chunks. Not dropped while the GPU may access it, nor in a forked child, which has not inherited it.
    buffer: ManuallyDrop<MmapMut>,
    chunk: usize,
}

// SAFETY: owns a buffer and handles of CUDA, which accepts them from all threads.
unsafe impl Send for CopyEngine {}

impl CopyEngine {
    /// One in a context, which copies `chunk` bytes at a time.
    pub(crate) fn new(home: Home, chunk: usize) -> Result<CopyEngine> {
        let driver = home.driver();
        let buffer = page_locked_later(chunk * LANES)?;
        let mut engine = CopyEngine {
            home,
            lanes: [const {
                Lane {
                    stream: ptr::null_mut(),
                    in_flight: false,
                }
            }; LANES],
            buffer: ManuallyDrop::new(buffer),
            chunk,
        };
        // From here on, `Drop` undoes what is done.
        let CopyEngine {
            home,
            lanes,
            buffer,
            ..
        } = &mut engine;
        home.enter(|| {
            for lane in lanes {
                // SAFETY: the output belongs to the engine.
                let result = unsafe { (driver.stream_create)(&mut lane.stream, NON_BLOCKING) };
                driver.check("cuStreamCreate", result)?;
            }
            // SAFETY: the memory is the engine's, and is unregistered before it is unmapped.
            let result = unsafe {
                (driver.host_register)(buffer.as_mut_ptr().cast(), buffer.len(), PORTABLE)
            };
            driver.check("cuMemHostRegister", result)
        })?;
        log::debug!("copy engine with a buffer of {LANES} x {chunk} bytes");
        Ok(engine)
    }

    /// Where it is: it copies GPU memory with the same home.
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// Whether the GPU has finished a copy that timed out. Does not wait.
    pub(crate) fn is_idle(&mut self) -> bool {
        let driver = self.home.driver();
        let CopyEngine { home, lanes, .. } = self;
        let poll = || Ok(lanes.iter_mut().all(|lane| lane.poll(driver).is_some()));
        home.enter(poll).unwrap_or(false)
    }

    /// Copies GPU memory to `dst`, through the buffer.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if a chunk takes longer than `patience`: the engine is then busy. What CUDA answered.
    /// `dst` is then partly written.
    pub(crate) fn read(&mut self, src: u64, dst: &mut [u8], patience: Duration) -> Result<()> {
        let driver = self.home.driver();
        let (base, chunk) = (self.buffer.as_mut_ptr(), self.chunk);
        let CopyEngine { home, lanes, .. } = self;
        let len = dst.len();
        let start = |lane: &mut Lane, index: usize, bytes: &Range<usize>| {
            let (buffer, src) = (base.wrapping_add(index * chunk), src + bytes.start as u64);
            // SAFETY: the lane's part of the buffer, which is idle, has room for a chunk.
            lane.start("cuMemcpyDtoHAsync", driver, |stream| unsafe {
                (driver.copy_to_host)(buffer.cast(), src, bytes.len(), stream)
            })
        };
        let finish = |lane: &mut Lane, index: usize, bytes: Range<usize>| {
            lane.wait(driver, Some(patience))?;
            let buffer = base.wrapping_add(index * chunk);
            // SAFETY: the GPU has finished writing these bytes, and no one else has the buffer.
            let bytes_read = unsafe { std::slice::from_raw_parts(buffer, bytes.len()) };
            dst[bytes].copy_from_slice(bytes_read);
            Ok(())
        };
        home.enter(|| pipeline(lanes, len, chunk, start, finish))
    }

    /// Copies `src` to GPU memory, through the buffer. Waits for the GPU without limit, also after an error: a late
    /// copy would overwrite what the caller writes next.
    ///
    /// # Safety
    /// As for writes through a mapping of the range.
    pub(crate) unsafe fn write(&mut self, dst: u64, src: &[u8]) -> Result<()> {
        let driver = self.home.driver();
        let (base, chunk) = (self.buffer.as_mut_ptr(), self.chunk);
        let CopyEngine { home, lanes, .. } = self;
        let start = |lane: &mut Lane, index: usize, bytes: &Range<usize>| {
            let buffer = base.wrapping_add(index * chunk);
            // SAFETY: as in `read`; the range of the GPU's memory is the caller's.
            unsafe {
                ptr::copy_nonoverlapping(src[bytes.clone()].as_ptr(), buffer, bytes.len());
                lane.start("cuMemcpyHtoDAsync", driver, |stream| {
                    let dst = dst + bytes.start as u64;
                    (driver.copy_to_device)(dst, buffer.cast(), bytes.len(), stream)
                })
            }
        };
        let finish = |lane: &mut Lane, _, _| lane.wait(driver, None);
        home.enter(|| {
            let result = pipeline(lanes, src.len(), chunk, start, finish);
            for lane in lanes {
                let _ = lane.wait(driver, None);
            }
            result
        })
    }

    /// Copies GPU memory to host memory that the program has registered with CUDA. Waits for the GPU without limit: it
    /// writes the memory until then.
    pub(crate) fn read_directly(&mut self, src: u64, dst: &mut [u8]) -> Result<()> {
        let driver = self.home.driver();
        // SAFETY: `dst` is borrowed until the GPU has finished.
        self.copy_directly("cuMemcpyDtoHAsync", |stream| unsafe {
            (driver.copy_to_host)(dst.as_mut_ptr().cast(), src, dst.len(), stream)
        })
    }

    /// Copies host memory that the program has registered with CUDA to GPU memory. Waits as `read_directly` does.
    ///
    /// # Safety
    /// As for writes through a mapping of the range.
    pub(crate) unsafe fn write_directly(&mut self, dst: u64, src: &[u8]) -> Result<()> {
        let driver = self.home.driver();
        // SAFETY: `src` is borrowed until the GPU has finished; the range of the GPU's memory is the caller's.
        self.copy_directly("cuMemcpyHtoDAsync", |stream| unsafe {
            (driver.copy_to_device)(dst, src.as_ptr().cast(), src.len(), stream)
        })
    }

    fn copy_directly(
        &mut self,
        call: &'static str,
        copy: impl FnOnce(*mut c_void) -> c_uint,
    ) -> Result<()> {
        let driver = self.home.driver();
        let CopyEngine { home, lanes, .. } = self;
        home.enter(|| {
            lanes[0].start(call, driver, copy)?;
            lanes[0].wait(driver, None)
        })
    }
}

/// Copies `len` bytes, `chunk` at a time, with one copy in flight in each lane.
fn pipeline(
    lanes: &mut [Lane; LANES],
    len: usize,
    chunk: usize,
    mut start: impl FnMut(&mut Lane, usize, &Range<usize>) -> Result<()>,
    mut finish: impl FnMut(&mut Lane, usize, Range<usize>) -> Result<()>,
) -> Result<()> {
    let count = len.div_ceil(chunk);
    let bytes = |i: usize| i * chunk..len.min((i + 1) * chunk);
    for i in 0..count + LANES {
        let lane = i % LANES;
        if let Some(earlier) = i.checked_sub(LANES).filter(|&earlier| earlier < count) {
            finish(&mut lanes[lane], lane, bytes(earlier))?;
        }
        if i < count {
            start(&mut lanes[lane], lane, &bytes(i))?;
        }
    }
    Ok(())
}

impl Lane {
    /// Queues a copy.
    fn start(
        &mut self,
        call: &'static str,
        driver: &Driver,
        copy: impl FnOnce(*mut c_void) -> c_uint,
    ) -> Result<()> {
        driver.check(call, copy(self.stream))?;
        self.in_flight = true;
        Ok(())
    }

    /// The result of the copy, if it has ended. Some answers only say that this thread may not ask now; other errors
    /// are those of a context that does not work any more.
    fn poll(&mut self, driver: &Driver) -> Option<Result<()>> {
        if !self.in_flight {
            return Some(Ok(()));
        }
        // SAFETY: the stream is ours.
        let result = unsafe { (driver.stream_query)(self.stream) };
        self.in_flight =
            matches!(result, NOT_READY | NOT_PERMITTED) || CAPTURE_ERRORS.contains(&result);
        (!self.in_flight).then(|| driver.check("cuStreamQuery", result))
    }

    /// Waits until the copy has ended, at most as long as `patience`.
    fn wait(&mut self, driver: &Driver, patience: Option<Duration>) -> Result<()> {
        let begun = Instant::now();
        loop {
            if let Some(result) = self.poll(driver) {
                return result;
            }
            let waited = begun.elapsed();
            if patience.is_some_and(|patience| waited > patience) {
                return Err(Error::TimedOut);
            }
            match waited < EAGER {
                true => std::hint::spin_loop(),
                false => std::thread::yield_now(),
            }
        }
    }
}

/// Memory that forked children do not inherit: fork would make the process write to new pages, and the GPU to the
/// old ones.
fn page_locked_later(len: usize) -> Result<MmapMut> {
    let memory = MmapOptions::new().len(len).map_anon();
    let memory = memory.and_then(|memory| memory.advise(Advice::DontFork).map(|()| memory));
    memory.map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(Errno::ENOMEM as i32);
        Error::driver(Call::Mmap, errno)
    })
}

impl Drop for CopyEngine {
    fn drop(&mut self) {
        if !self.home.owner().is_current() {
            return;
        }
        if !self.is_idle() {
            log::warn!(
                "the copy engine is still busy: {} bytes stay allocated",
                self.buffer.len()
            );
            return;
        }
        let driver = self.home.driver();
        let CopyEngine {
            home,
            lanes,
            buffer,
            ..
        } = self;
        let undone = home.enter(|| {
            let streams = lanes.iter().map(|lane| lane.stream);
            // SAFETY: streams and registration are the engine's, and idle.
            unsafe {
                for stream in streams.filter(|stream| !stream.is_null()) {
                    (driver.stream_destroy)(stream);
                }
                // Fails if registering has failed, or the program has reset the device.
                (driver.host_unregister)(buffer.as_mut_ptr().cast());
            }
            Ok(())
        });
        if undone.is_ok() {
            // SAFETY: not used again.
            unsafe { ManuallyDrop::drop(buffer) }
        }
    }
}
