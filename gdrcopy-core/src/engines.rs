//! Copies by CUDA's copy engine, whose streams and buffers are kept for later ones.

use std::mem::ManuallyDrop;
use std::time::Duration;

use crate::cancel::Deferred;
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::sys::cuda::context::Home;
use crate::sys::cuda::stream::CopyEngine;
use crate::sys::cuda::{self, Driver};
use crate::types::cuda_version::EXPORTS_DMA_BUFS;

/// The most bytes of a chunk, because the buffer of two is page-locked.
pub const MAX_CHUNK: usize = 1 << 30;

/// How copy engines copy.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Bytes of half the buffer, from 1 to [`MAX_CHUNK`]; others are taken for the nearest of them.
    pub chunk: usize,
    /// How long a read through the buffer waits for one chunk.
    pub patience: Duration,
    /// If true, the copy engine accesses the caller's memory, where that is registered with CUDA.
    pub direct: bool,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            // A MiB overlaps in four pieces.
            chunk: 256 << 10,
            // Thousands of times as long as a chunk takes on an idle GPU.
            patience: Duration::from_millis(100),
            direct: true,
        }
    }
}

/// Copy engines, set up at the first copy.
#[derive(Debug)]
pub struct Engines {
    options: EngineOptions,
    /// Engines that no call uses, whatever CUDA answered to the last. The next call finds out whether they work.
    unused: Mutex<Vec<CopyEngine>>,
}

impl Engines {
    /// Sets nothing up yet.
    pub fn new(options: EngineOptions) -> Engines {
        let chunk = options.chunk.clamp(1, MAX_CHUNK);
        Engines { options: EngineOptions { chunk, ..options }, unused: Mutex::default() }
    }

    /// Copies `len` bytes of GPU memory at this device address to `dst`. The caller's earlier writes through a mapping
    /// have been flushed. Returns whether the copy engine accessed `dst` itself, and not the page-locked buffer. After an
    /// error, `dst` may be partly written.
    ///
    /// While `dst` is written, a signal handler may leave by siglongjmp, unless the copy engine writes it directly
    /// ([`CopyEngine::read`]).
    ///
    /// # Safety
    /// `dst` is writable for `len` bytes.
    pub unsafe fn read(&self, src: u64, dst: *mut u8, len: usize) -> Result<bool> {
        let (driver, mut engine) = {
            let _deferred = Deferred::new();
            let driver = cuda::load(EXPORTS_DMA_BUFS)?;
            // Left by siglongjmp, a frame must have no destructor to run.
            (driver, ManuallyDrop::new(self.take(driver, src)?))
        };
        let is_direct = self.is_direct(driver, dst, len);
        // SAFETY: contract of this function.
        let result = unsafe {
            match is_direct {
                true => engine.read_directly(src, dst, len),
                false => engine.read(src, dst, len, self.options.patience),
            }
        };
        let _deferred = Deferred::new();
        self.unused.lock().push(ManuallyDrop::into_inner(engine));
        result.map(|()| is_direct)
    }

    /// Copies `src` to the GPU memory at this device address. The caller's earlier writes through a mapping have been
    /// flushed. Returns what `read` does.
    ///
    /// # Safety
    /// The GPU memory is pinned, and may be written.
    pub unsafe fn write(&self, dst: u64, src: &[u8]) -> Result<bool> {
        let driver = cuda::load(EXPORTS_DMA_BUFS)?;
        let mut engine = self.take(driver, dst)?;
        let is_direct = self.is_direct(driver, src.as_ptr(), src.len());
        // SAFETY: contract of this function.
        let result = unsafe {
            match is_direct {
                true => engine.write_directly(dst, src),
                false => engine.write(dst, src),
            }
        };
        self.unused.lock().push(engine);
        result.map(|()| is_direct)
    }

    /// Frees those that no call uses, even if a copy was left that keeps the rest.
    pub fn free(&self) {
        drop(std::mem::take(&mut *self.unused.lock()));
    }

    /// Returns whether the copy engine may access this host memory.
    fn is_direct(&self, driver: &Driver, host: *const u8, len: usize) -> bool {
        self.options.direct && driver.is_host_memory(host.addr() as u64, len)
    }

    /// An engine that reaches the memory and that no one else uses.
    fn take(&self, driver: &'static Driver, address: u64) -> Result<CopyEngine> {
        let home = Home::of_memory(driver, address)?;
        while let Some(mut engine) = self.take_of(&home) {
            if !engine.is_live() {
                // It is of a context that was at the same address.
                drop(engine);
            } else if engine.is_idle() {
                return Ok(engine);
            } else {
                self.unused.lock().push(engine);
                return Err(Error::TimedOut);
            }
        }
        let home = home.kept(Some(driver.device_of(address)?))?;
        CopyEngine::new(home, self.options.chunk)
    }

    fn take_of(&self, home: &Home) -> Option<CopyEngine> {
        let mut unused = self.unused.lock();
        let index = unused.iter().position(|engine| engine.home() == home)?;
        Some(unused.swap_remove(index))
    }
}
