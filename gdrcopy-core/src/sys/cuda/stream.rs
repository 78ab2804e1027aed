//! The copy engine, with streams of its own, with page-locked buffers.

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
const INVALID_VALUE: c_uint = 1;
const NOT_READY: c_uint = 600;
/// The thread is in a host callback.
const NOT_PERMITTED: c_uint = 800;
/// The thread, or the stream, is capturing.
const CAPTURE_ERRORS: RangeInclusive<c_uint> = 900..=908;

/// For cuMemHostRegister, page-locked for the context that is current.
const NO_FLAGS: c_uint = 0;

/// While one chunk is copied between the buffer and the caller's memory, the GPU copies the other one.
const LANES: usize = 2;

/// The time for which a waiting thread keeps its CPU before it offers it to others between queries, some 50 MiB by
/// PCIe.
const EAGER: Duration = Duration::from_millis(1);

/// A stream, and whether the GPU may still access the part of the buffer that belongs to it.
#[derive(Debug)]
struct Lane {
    stream: *mut c_void,
    in_flight: bool,
}

/// Copies between a GPU's memory and host memory, by CUDA's copy engine.
///
/// The buffer is this library's memory, registered with CUDA, rather than CUDA's, so it stays mapped even if the
/// program destroys the context. Its registration ends with the context, which is how that is noticed.
#[derive(Debug)]
pub struct CopyEngine {
    home: Home,
    lanes: [Lane; LANES],
    /// `LANES` chunks. Not dropped while the GPU may access it, nor in a forked child, which has not inherited it.
    buffer: ManuallyDrop<MmapMut>,
    /// CUDA's number of the buffer's registration.
    registration: Option<u64>,
    chunk: usize,
}

// SAFETY: owns a buffer and handles of CUDA, which accepts them from all threads.
unsafe impl Send for CopyEngine {}

/// The knowledge about the context that an engine was made in.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ContextState {
    Live,
    /// Destroyed or reset, perhaps with another one at its address. CUDA does not check the streams that were in it.
    Gone,
    /// CUDA does not answer.
    Unknown,
}

impl CopyEngine {
    /// One in a context, which copies `chunk` bytes at a time.
    pub fn new(home: Home, chunk: usize) -> Result<CopyEngine> {
        let driver = home.driver();
        let mut engine = CopyEngine {
            home,
            lanes: [const { Lane { stream: ptr::null_mut(), in_flight: false } }; LANES],
            buffer: ManuallyDrop::new(page_locked_later(chunk.checked_mul(LANES).ok_or(Error::RangeOverflow)?)?),
            registration: None,
            chunk,
        };
        // From here on, `Drop` undoes what is done.
        let CopyEngine { home, lanes, buffer, registration, .. } = &mut engine;
        home.enter(|| {
            // The function that ends it must be there before it begins.
            driver.cu.stream_query()?;
            driver.cu.stream_destroy()?;
            let unregister = driver.cu.host_unregister()?;
            // SAFETY: the memory is the engine's, and is unregistered before it is unmapped.
            let result = unsafe { driver.cu.host_register()?(buffer.as_mut_ptr().cast(), buffer.len(), NO_FLAGS) };
            driver.check("cuMemHostRegister", result)?;
            let number = driver.buffer_id(buffer.as_ptr().addr() as u64);
            *registration = Some(number.inspect_err(|_| {
                // SAFETY: registered above, and nothing uses it.
                unsafe { unregister(buffer.as_mut_ptr().cast()) };
            })?);
            lanes.iter_mut().try_for_each(|lane| driver.create_stream(&mut lane.stream))
        })?;
        log::debug!("copy engine with a buffer of {LANES} x {chunk} bytes");
        Ok(engine)
    }

    /// The place where it was made. It copies GPU memory with the same home, while its context is live.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Returns whether its context still exists.
    pub fn is_live(&self) -> bool {
        self.context() == ContextState::Live
    }

    fn context(&self) -> ContextState {
        let driver = self.home.driver();
        match driver.buffer_id(self.buffer.as_ptr().addr() as u64) {
            Ok(number) if Some(number) == self.registration => ContextState::Live,
            Ok(_) => ContextState::Gone,
            Err(Error::Cuda { error, .. }) if error.code == INVALID_VALUE => ContextState::Gone,
            Err(_) => ContextState::Unknown,
        }
    }

    /// Returns whether the GPU has finished a copy that timed out. Does not wait.
    pub fn is_idle(&mut self) -> bool {
        let driver = self.home.driver();
        let CopyEngine { home, lanes, .. } = self;
        if !lanes.iter().any(|lane| lane.in_flight) {
            return true;
        }
        let poll = || Ok(lanes.iter_mut().all(|lane| lane.poll(driver).is_some()));
        home.enter(poll).unwrap_or(false)
    }

    /// Copies `len` bytes of GPU memory to `dst`, through the buffer.
    ///
    /// While `dst` is written, nothing is locked, nothing of the thread is changed, and no frame has a destructor to
    /// run. So a signal handler may leave by siglongjmp. The engine is lost then.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if a chunk takes longer than `patience`. The engine is then busy. CUDA's error. `dst` is
    /// then partly written.
    ///
    /// # Safety
    /// `dst` is writable for `len` bytes.
    pub unsafe fn read(&mut self, src: u64, dst: *mut u8, len: usize, patience: Duration) -> Result<()> {
        let driver = self.home.driver();
        let copy = driver.cu.copy_to_host()?;
        let (base, chunk) = (self.buffer.as_mut_ptr(), self.chunk);
        let CopyEngine { home, lanes, .. } = self;
        let count = len.div_ceil(chunk);
        let buffer = |piece: usize| base.wrapping_add(piece % LANES * chunk);
        let mut started = 0;
        for piece in 0..count {
            home.enter(|| {
                while started < count.min(piece + LANES) {
                    let bytes = piece_of(len, chunk, started);
                    let (buffer, src) = (buffer(started), src + bytes.start as u64);
                    // SAFETY: the lane's part of the buffer, which is idle, has room for a chunk.
                    lanes[started % LANES].start("cuMemcpyDtoHAsync", driver, |stream| unsafe {
                        copy(buffer.cast(), src, bytes.len(), stream)
                    })?;
                    started += 1;
                }
                lanes[piece % LANES].wait(driver, Some(patience))
            })?;
            let bytes = piece_of(len, chunk, piece);
            // SAFETY: the GPU has finished writing these bytes of the buffer, which no one else has; `dst` has room for
            // them: contract of this function.
            unsafe {
                ptr::copy_nonoverlapping(buffer(piece), dst.add(bytes.start), bytes.len());
            }
        }
        Ok(())
    }

    /// Copies `src` to GPU memory, through the buffer. Waits for the GPU without limit, also after an error, because a
    /// late copy would overwrite later writes of the caller.
    ///
    /// # Safety
    /// The contract of writes through a mapping of the range.
    pub unsafe fn write(&mut self, dst: u64, src: &[u8]) -> Result<()> {
        let driver = self.home.driver();
        let copy = driver.cu.copy_to_device()?;
        let (base, chunk) = (self.buffer.as_mut_ptr(), self.chunk);
        let CopyEngine { home, lanes, .. } = self;
        home.enter(|| {
            let mut result = Ok(());
            for piece in 0..src.len().div_ceil(chunk) {
                let bytes = piece_of(src.len(), chunk, piece);
                let (lane, dst) = (piece % LANES, dst + bytes.start as u64);
                let buffer = base.wrapping_add(lane * chunk);
                result = lanes[lane].wait(driver, None).and_then(|()| {
                    // SAFETY: the lane's part of the buffer is idle and has room for a chunk; the range of the GPU's memory
                    // is the caller's.
                    unsafe {
                        ptr::copy_nonoverlapping(src[bytes.clone()].as_ptr(), buffer, bytes.len());
                        lanes[lane]
                            .start("cuMemcpyHtoDAsync", driver, |stream| copy(dst, buffer.cast(), bytes.len(), stream))
                    }
                });
                if result.is_err() {
                    break;
                }
            }
            for lane in lanes {
                result = result.and(lane.wait(driver, None));
            }
            result
        })
    }

    /// Copies GPU memory to host memory that the program has registered with CUDA. Waits for the GPU without limit,
    /// because it writes the memory until then.
    ///
    /// # Safety
    /// `dst` is writable for `len` bytes.
    pub unsafe fn read_directly(&mut self, src: u64, dst: *mut u8, len: usize) -> Result<()> {
        let copy = self.home.driver().cu.copy_to_host()?;
        // SAFETY: `dst` is writable until the GPU has finished: contract of this function.
        self.copy_directly("cuMemcpyDtoHAsync", |stream| unsafe { copy(dst.cast(), src, len, stream) })
    }

    /// Copies host memory that the program has registered with CUDA to GPU memory. Waits as `read_directly` does.
    ///
    /// # Safety
    /// The contract of writes through a mapping of the range.
    pub unsafe fn write_directly(&mut self, dst: u64, src: &[u8]) -> Result<()> {
        let copy = self.home.driver().cu.copy_to_device()?;
        // SAFETY: `src` is borrowed until the GPU has finished; the range of the GPU's memory is the caller's.
        self.copy_directly("cuMemcpyHtoDAsync", |stream| unsafe { copy(dst, src.as_ptr().cast(), src.len(), stream) })
    }

    fn copy_directly(&mut self, call: &'static str, copy: impl FnOnce(*mut c_void) -> c_uint) -> Result<()> {
        let driver = self.home.driver();
        let CopyEngine { home, lanes, .. } = self;
        home.enter(|| {
            lanes[0].start(call, driver, copy)?;
            lanes[0].wait(driver, None)
        })
    }
}

/// The bytes of one piece of a copy.
fn piece_of(len: usize, chunk: usize, piece: usize) -> Range<usize> {
    piece * chunk..len.min((piece + 1) * chunk)
}

impl Lane {
    /// Queues a copy.
    fn start(&mut self, call: &'static str, driver: &Driver, copy: impl FnOnce(*mut c_void) -> c_uint) -> Result<()> {
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
        let query = match driver.cu.stream_query() {
            Ok(query) => query,
            // Nothing was started without it.
            Err(missing) => return Some(Err(missing)),
        };
        // SAFETY: the stream is ours, in a context that exists.
        let result = unsafe { query(self.stream) };
        self.in_flight = matches!(result, NOT_READY | NOT_PERMITTED) || CAPTURE_ERRORS.contains(&result);
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

/// Memory that forked children do not inherit. Fork would make the process write to new pages, and the GPU to the old
/// ones.
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
        let driver = self.home.driver();
        match self.context() {
            ContextState::Gone => {
                log::debug!("the context of a copy engine is gone, and its streams with it")
            }
            ContextState::Live if self.is_idle() => {
                let CopyEngine { home, lanes, buffer, .. } = self;
                let undone = home.enter(|| {
                    let (destroy, unregister) = (driver.cu.stream_destroy()?, driver.cu.host_unregister()?);
                    let streams = lanes.iter().map(|lane| lane.stream);
                    // SAFETY: streams and registration are the engine's, and idle; the context that they are in exists.
                    let result = unsafe {
                        for stream in streams.filter(|stream| !stream.is_null()) {
                            destroy(stream);
                        }
                        unregister(buffer.as_mut_ptr().cast())
                    };
                    driver.check("cuMemHostUnregister", result)
                });
                if undone.is_err() {
                    return;
                }
            }
            context => {
                let len = self.buffer.len();
                log::warn!("a copy engine is still in use ({context:?}): {len} bytes stay allocated");
                return;
            }
        }
        // SAFETY: CUDA does not know the buffer any more, and it is not used again.
        unsafe { ManuallyDrop::drop(&mut self.buffer) }
    }
}
