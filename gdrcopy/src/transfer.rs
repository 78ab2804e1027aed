//! Copies of any size, each by the faster path, through the mapping or by CUDA's copy engine.

use std::time::Duration;

use gdrcopy_core::engines::{EngineOptions, Engines};
use gdrcopy_core::error::Result;
use gdrcopy_core::sys::fork::Owner;
use gdrcopy_core::types::MappingType;

use crate::access::MappedSlice;

/// Bytes from which a read by the copy engine is faster. On an H200, cuMemcpy to page-locked memory is faster from 8
/// KiB on (docs/performance.md). The flush before it and the copy out of the buffer add to it.
const READ_CROSSOVER: usize = 16 << 10;

/// Bytes from which a write by the copy engine is faster. There, cuMemcpy from page-locked memory is faster from
/// 512 KiB on; the flush and the copy into the buffer add to it.
const WRITE_CROSSOVER: usize = 1 << 20;

/// Copies between GPU memory and host memory, by the faster path for the size and the direction.
///
/// | copy | path |
/// | --- | --- |
/// | below the crossover, or through a [`Caching`](MappingType::Caching) mapping | the mapping; by threads from 1 MiB on, if [`set_threads`](crate::set_threads) asks for them |
/// | else, and the host memory is registered with CUDA | CUDA's copy engine, directly |
/// | else | CUDA's copy engine, through a page-locked buffer of two chunks. While the GPU copies one, the CPU copies the other. |
/// | where CUDA does not answer, or too late | the mapping |
///
/// The first copy by the copy engine sets up two non-blocking streams and the buffer, in the context of the GPU memory.
/// So it takes longer. Threads that copy at the same time each get their own; all are kept until the `Transfer` is
/// dropped.
///
/// ```
/// # mod gpu { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs")); }
/// # gpu::run(|gpu| {
/// # let mapping = gpu.mapping()?;
/// use gdrcopy::Mapped;
/// let transfer = gdrcopy::Transfer::new();
/// let mut bytes = vec![0; 1 << 20];
/// let route = transfer.read(mapping.slice(4096..)?, &mut bytes)?;
/// assert_eq!(route, gdrcopy::transfer::Route::Buffered);
/// # Ok(())
/// # });
/// ```
///
/// # Order
/// The order of [`MappedSlice::read`] and [`MappedSlice::write`], whatever the path. Before the copy engine is used,
/// the thread's earlier writes through the mapping are waited for ([`MappedSlice::flush`]); when a call returns, it has
/// finished. Nothing waits for the program's streams, so a copy is not ordered with GPU kernels under way.
///
/// # With CUDA
/// - The copy engine is used only if the program has initialized CUDA. CUDA's calls are made in the context of the GPU
///   memory, and leave the thread's current context and its capture mode as they were. They do not disturb graphs that
///   other streams or this thread capture.
/// - In a host callback (`cuLaunchHostFunc`) CUDA permits no calls, so copies go through the mapping. Do not call it
///   there for large copies, because the stream waits.
/// - A forked child is refused.
/// - A primary context is kept until the transfer is dropped. While no copy is under way nor the transfer being
///   dropped, the device may be reset, and a context of cuCtxCreate be destroyed. The transfer notices it, and uses no
///   stream of a context that is gone. Dropping may wait for work of the context, and leaves the buffer allocated if a
///   copy that has timed out is still under way.
#[derive(Debug)]
pub struct Transfer {
    options: TransferOptions,
    engines: Engines,
    owner: Owner,
}

/// The path that a copy took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route {
    /// The CPU, through the mapping.
    Mapping,
    /// CUDA's copy engine and the page-locked buffer.
    Buffered,
    /// CUDA's copy engine and the caller's memory, which is registered with CUDA.
    Direct,
}

/// How a [`Transfer`] copies. Made by [`Transfer::options`].
#[derive(Clone, Copy, Debug)]
#[must_use = "it makes no transfer until `build` is called"]
pub struct TransferOptions {
    read_crossover: usize,
    write_crossover: usize,
    engines: EngineOptions,
}

impl TransferOptions {
    /// The copy engine makes reads of this many bytes and more, 16 KiB by default, `usize::MAX` for none.
    pub fn read_crossover(mut self, bytes: usize) -> TransferOptions {
        self.read_crossover = bytes;
        self
    }

    /// The copy engine makes writes of this many bytes and more, 1 MiB by default, `usize::MAX` for none.
    pub fn write_crossover(mut self, bytes: usize) -> TransferOptions {
        self.write_crossover = bytes;
        self
    }

    /// Bytes of half the buffer, from 1 to 1 GiB, 256 KiB by default. Longer copies are made in pieces of this size.
    /// Other numbers are taken for the nearest of these.
    pub fn chunk(mut self, bytes: usize) -> TransferOptions {
        self.engines.chunk = bytes;
        self
    }

    /// If true, the copy engine accesses the caller's memory, where that is registered with CUDA. True by default. Else
    /// it always goes through the buffer.
    pub fn direct(mut self, direct: bool) -> TransferOptions {
        self.engines.direct = direct;
        self
    }

    /// The time for which a read through the buffer waits for one chunk, 100 ms by default. After that the whole read
    /// is made through the mapping, and so are all others until the copy engine has finished.
    ///
    /// Writes, and reads into registered memory, wait without limit, because the copy engine would overwrite later
    /// data.
    pub fn patience(mut self, patience: Duration) -> TransferOptions {
        self.engines.patience = patience;
        self
    }

    /// The transfer. Allocates nothing yet.
    pub fn build(self) -> Transfer {
        Transfer { options: self, engines: Engines::new(self.engines), owner: Owner::current() }
    }
}

impl Default for TransferOptions {
    fn default() -> TransferOptions {
        TransferOptions {
            read_crossover: READ_CROSSOVER,
            write_crossover: WRITE_CROSSOVER,
            engines: EngineOptions::default(),
        }
    }
}

impl Default for Transfer {
    fn default() -> Transfer {
        Transfer::new()
    }
}

impl Transfer {
    /// One with the default crossovers, which were measured on an H200.
    pub fn new() -> Transfer {
        Transfer::options().build()
    }

    /// Others.
    pub fn options() -> TransferOptions {
        TransferOptions::default()
    }

    /// Copies the first `dst.len()` bytes of the mapped memory to `dst`. They are no older than the call.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`](crate::Error::OutOfMapping), [`Error::ForkedChild`](crate::Error::ForkedChild); nothing is
    /// read then. CUDA's errors are logged, and the mapping is used.
    pub fn read(&self, src: MappedSlice<'_>, dst: &mut [u8]) -> Result<Route> {
        self.owner.check()?;
        let src = src.slice(..dst.len())?;
        if is_for_copy_engine(src, self.options.read_crossover) {
            src.flush()?;
            let (address, len) = (src.device_address(), dst.len());
            // SAFETY: `dst` is borrowed.
            match unsafe { self.engines.read(address, dst.as_mut_ptr(), len) } {
                Ok(is_direct) => return Ok(Route::of_engine(is_direct)),
                Err(error) => log::debug!("read of {len} bytes through the mapping: {error}"),
            }
        }
        src.read(0, dst).map(|()| Route::Mapping)
    }

    /// Copies `src` to the start of the mapped memory. It has arrived there, or is on its way as after
    /// [`MappedSlice::write`].
    ///
    /// # Errors
    /// [`Error::OutOfMapping`](crate::Error::OutOfMapping), [`Error::ForkedChild`](crate::Error::ForkedChild); nothing is
    /// written then. CUDA's errors are logged, and the mapping is used.
    pub fn write(&self, dst: MappedSlice<'_>, src: &[u8]) -> Result<Route> {
        self.owner.check()?;
        let dst = dst.slice(..src.len())?;
        if is_for_copy_engine(dst, self.options.write_crossover) {
            dst.flush()?;
            // SAFETY: all of `dst` is mapped, hence pinned, and may be written: contract of `Gdr::pin`.
            match unsafe { self.engines.write(dst.device_address(), src) } {
                Ok(is_direct) => return Ok(Route::of_engine(is_direct)),
                Err(error) => log::debug!("write of {} bytes through the mapping: {error}", src.len()),
            }
        }
        dst.write(0, src).map(|()| Route::Mapping)
    }
}

impl Route {
    fn of_engine(is_direct: bool) -> Route {
        if is_direct { Route::Direct } else { Route::Buffered }
    }
}

/// The CPU copies from and to cached memory as fast as its own.
fn is_for_copy_engine(memory: MappedSlice<'_>, crossover: usize) -> bool {
    memory.len() >= crossover.max(1) && memory.mapping_type() != MappingType::Caching
}
