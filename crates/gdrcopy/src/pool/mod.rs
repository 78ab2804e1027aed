//! A pool of small buffers in pinned GPU memory.
//!
//! A pool divides large pieces of GPU memory, its chunks, into buffers. A chunk owns its memory, its mapping, the list
//! of the parts that are in use, and the lock of this list. A buffer keeps its chunk alive, and so does not need the
//! pool. The pool also keeps the chunks alive that several buffers can share.
#![forbid(unsafe_code)]

pub(crate) mod blocks;
mod buffer;
mod chunk;
mod options;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Weak};

pub use buffer::PoolBuffer;
pub use options::PoolOptions;

use gdrcopy_core::sync::Mutex;
use gdrcopy_core::sys::fork::Owner;
use gdrcopy_core::types::GPU_PAGE_SIZE as PAGE;

use crate::access::Mapped;
use crate::error::{Error, GdrError, Result};
use crate::gdr::Gdr;
use crate::memory::{DeviceAllocator, DeviceMemory, whole_pages};

use blocks::LARGE;
use chunk::Chunk;

/// Hands out small buffers of GPU memory that is pinned and mapped in large chunks.
///
/// A pin takes system calls, and at least 64 KiB (a GPU page) of BAR1. A buffer of a pool takes 64 bytes and a lock.
/// Threads share the pool by reference.
///
/// | buffer | memory |
/// | --- | --- |
/// | below 64 KiB | a part of a GPU page that only such buffers share, in units of 64 bytes |
/// | up to 2 MiB | whole GPU pages of a shared chunk |
/// | above 2 MiB | a chunk of its own, 2 MiB aligned, which is freed with the buffer. In a pool of fixed memory, 2 MiB-aligned pages of that memory |
///
/// The memory of a new buffer is not zeroed: it contains the bytes that an earlier buffer or the allocator left there.
/// [`Pool::alloc_zeroed`] writes zeros.
///
/// A shared chunk is kept until [`Pool::trim`], or until the pool and the last buffer in the chunk are dropped.
/// Dropping a pool while buffers exist leaves them valid; debug builds log a warning.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::memory::CudaAllocator;
/// use gdrcopy::{Gdr, Mapped, Pool};
/// let pool = Pool::new(&Gdr::open()?, CudaAllocator::new(0)?);
/// let flag = pool.alloc_zeroed(4)?;
/// let data = pool.alloc_aligned(1000, 256)?;
/// std::thread::scope(|s| {
///     s.spawn(|| {
///         data.write(0, b"data")?;
///         flag.word::<u32>(0)?.store(1);
///         gdrcopy::Result::Ok(())
///     });
/// });
/// println!("a GPU kernel polls the flag at {:#x}", flag.device_address());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pool {
    gdr: Gdr,
    /// `None` in a pool of fixed memory.
    allocator: Option<Box<dyn DeviceAllocator>>,
    options: PoolOptions,
    chunks: Mutex<Chunks>,
    /// This lock is held while a shared chunk is made, so that several threads that need a chunk make only one.
    growth: Mutex<()>,
    owner: Owner,
}

#[derive(Debug)]
struct Chunks {
    shared: Vec<Arc<Chunk>>,
    /// The chunks of large buffers. Each chunk has one buffer, and only this buffer keeps the chunk alive.
    own: Vec<Weak<Chunk>>,
}

/// The use of a pool's memory, as [`Pool::report`] returns it.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::memory::CudaAllocator;
/// use gdrcopy::{Gdr, Pool};
/// let pool = Pool::new(&Gdr::open()?, CudaAllocator::new(0)?);
/// let buffer = pool.alloc(1000)?;
/// let report = pool.report()?;
/// assert_eq!((report.buffers, report.used_bytes, report.pinned_bytes), (1, 1024, 4 << 20));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolReport {
    /// The number of chunks. Each has one pin and one mapping.
    pub chunks: usize,
    /// The number of buffers in use.
    pub buffers: usize,
    /// The number of pinned bytes, both in use and free.
    pub pinned_bytes: u64,
    /// The number of bytes in use. Buffers are rounded up to units of 64 bytes or to pages of 64 KiB.
    pub used_bytes: u64,
    /// The number of bytes of the largest free range. A larger buffer needs another chunk.
    pub largest_free: u64,
}

impl PoolOptions {
    /// Makes a pool that takes memory from the allocator when a buffer needs it. This call takes no memory.
    pub fn build(self, gdr: &Gdr, allocator: impl DeviceAllocator + 'static) -> Pool {
        self.pool(gdr, Some(Box::new(allocator)), Vec::new())
    }

    /// Makes a pool of this memory only. Pins and maps those GPU pages that lie entirely in the memory.
    ///
    /// # Errors
    /// [`GdrError::EmptyRange`] if the memory contains no whole GPU page; the errors of [`Gdr::pin`](crate::Gdr::pin)
    /// and [`Pin::map`](crate::Pin::map).
    pub fn build_of_memory(self, gdr: &Gdr, memory: impl DeviceMemory + 'static) -> Result<Pool> {
        let range = whole_pages(&memory)?;
        let chunk = Chunk::new(gdr, Box::new(memory), range, self.map)?;
        Ok(self.pool(gdr, None, vec![chunk]))
    }

    fn pool(self, gdr: &Gdr, allocator: Option<Box<dyn DeviceAllocator>>, shared: Vec<Arc<Chunk>>) -> Pool {
        Pool {
            gdr: gdr.clone(),
            allocator,
            options: self,
            chunks: Mutex::new(Chunks { shared, own: Vec::new() }),
            growth: Mutex::default(),
            owner: Owner::current(),
        }
    }
}

impl Pool {
    /// Makes a pool with the default options, as [`PoolOptions::build`] does.
    pub fn new(gdr: &Gdr, allocator: impl DeviceAllocator + 'static) -> Pool {
        Pool::options().build(gdr, allocator)
    }

    /// Makes a pool of this memory only, such as [`RawMemory`](crate::memory::RawMemory), with the default options.
    ///
    /// # Errors
    /// The errors of [`PoolOptions::build_of_memory`].
    pub fn of_memory(gdr: &Gdr, memory: impl DeviceMemory + 'static) -> Result<Pool> {
        Pool::options().build_of_memory(gdr, memory)
    }

    /// Returns options for the size of chunks, and for how they are pinned and mapped.
    pub fn options() -> PoolOptions {
        PoolOptions::default()
    }

    /// Returns a buffer of `len` bytes at a multiple of 64 bytes. Its contents are not specified.
    ///
    /// # Errors
    /// The errors of [`Pool::alloc_aligned`].
    pub fn alloc(&self, len: usize) -> Result<PoolBuffer> {
        self.alloc_aligned(len, 1)
    }

    /// Returns a buffer as [`Pool::alloc`] does, and fills it with zeros.
    ///
    /// # Errors
    /// The errors of [`Pool::alloc_aligned`].
    pub fn alloc_zeroed(&self, len: usize) -> Result<PoolBuffer> {
        let buffer = self.alloc(len)?;
        buffer.fill(0)?;
        Ok(buffer)
    }

    /// Returns a buffer of `len` bytes. Its device address is a multiple of `align` bytes (a power of two) and of 64
    /// bytes. Its contents are not specified.
    ///
    /// # Errors
    /// [`GdrError::EmptyRange`] for length 0; [`Error::InvalidAlignment`] if `align` is not a power of two;
    /// [`GdrError::ForkedChild`]; [`Error::PoolExhausted`] in a pool of fixed memory. If another chunk is needed, also
    /// the errors of the allocator, [`Gdr::pin`] and [`Pin::map`](crate::Pin::map).
    pub fn alloc_aligned(&self, len: usize, align: usize) -> Result<PoolBuffer> {
        self.owner.check()?;
        if len == 0 {
            return Err(GdrError::EmptyRange.into());
        }
        if !align.is_power_of_two() {
            return Err(Error::InvalidAlignment { align });
        }
        let align = align as u64;
        if len as u64 > LARGE || align > LARGE {
            return self.alloc_large(len, align.max(LARGE));
        }
        if let Some(buffer) = self.take(len, align) {
            return Ok(buffer);
        }
        let _growth = self.growth.lock();
        // Another thread may have made a chunk while this thread waited for the lock.
        if let Some(buffer) = self.take(len, align) {
            return Ok(buffer);
        }
        let chunk = self.chunk(self.options.chunk_len, align)?;
        let buffer = PoolBuffer::take(&chunk, len, align);
        self.chunks.lock().shared.push(chunk);
        buffer.ok_or(Error::PoolExhausted)
    }

    /// Returns a buffer in a chunk of its own, or, in a pool of fixed memory, in that memory.
    fn alloc_large(&self, len: usize, align: u64) -> Result<PoolBuffer> {
        if self.allocator.is_none() {
            return self.take(len, align).ok_or(Error::PoolExhausted);
        }
        let pages = (len as u64).checked_next_multiple_of(PAGE);
        let chunk = self.chunk(pages.ok_or(GdrError::RangeOverflow)?, align)?;
        let buffer = PoolBuffer::take(&chunk, len, align).ok_or(Error::PoolExhausted)?;
        let own = &mut self.chunks.lock().own;
        own.retain(|chunk| chunk.strong_count() > 0);
        own.push(Arc::downgrade(&chunk));
        Ok(buffer)
    }

    /// Returns a buffer in a shared chunk, or `None` if no shared chunk has room.
    fn take(&self, len: usize, align: u64) -> Option<PoolBuffer> {
        let chunks = self.chunks.lock();
        chunks.shared.iter().find_map(|chunk| PoolBuffer::take(chunk, len, align))
    }

    /// Makes a chunk of `len` bytes, a multiple of the size of a page, at an address that is a multiple of `align`.
    fn chunk(&self, len: u64, align: u64) -> Result<Arc<Chunk>> {
        let allocator = self.allocator.as_ref().ok_or(Error::PoolExhausted)?;
        let align = align.max(PAGE);
        let roomy = len.checked_add(align).ok_or(GdrError::RangeOverflow)?;
        let mut memory = allocator.allocate(len as usize)?;
        if !memory.address().is_multiple_of(align) {
            drop(memory);
            memory = allocator.allocate(roomy as usize)?;
        }
        let start = memory.address().checked_next_multiple_of(align);
        let start = start.ok_or(GdrError::RangeOverflow)?;
        Chunk::new(&self.gdr, memory, start..start + len, self.options.map)
    }

    /// Unpins and frees the shared chunks that no buffer uses. A pool of fixed memory keeps its memory.
    ///
    /// # Errors
    /// [`GdrError::ForkedChild`].
    pub fn trim(&self) -> Result<()> {
        self.owner.check()?;
        if self.allocator.is_none() {
            return Ok(());
        }
        let mut chunks = self.chunks.lock();
        // Each buffer has a clone of its chunk's `Arc`. The pool makes these clones only under the lock, so no buffer
        // starts to use a chunk now.
        let unused: Vec<_> = chunks.shared.extract_if(.., |chunk| Arc::strong_count(chunk) == 1).collect();
        drop(chunks);
        drop(unused);
        Ok(())
    }

    /// Returns how much of the pool's memory is in use. Chunks are counted one after the other, so their numbers may
    /// not fit together while other threads allocate and drop buffers.
    ///
    /// # Errors
    /// [`GdrError::ForkedChild`].
    pub fn report(&self) -> Result<PoolReport> {
        self.owner.check()?;
        let chunks = self.chunks.lock();
        let own: Vec<_> = chunks.own.iter().filter_map(Weak::upgrade).collect();
        let mut report = PoolReport::default();
        for chunk in chunks.shared.iter().chain(&own) {
            let blocks = chunk.blocks();
            report.chunks += 1;
            report.buffers += blocks.count;
            report.pinned_bytes += blocks.used + blocks.free();
            report.used_bytes += blocks.used;
            report.largest_free = report.largest_free.max(blocks.largest_free());
        }
        // The local `own` may have the last reference to a chunk, if another thread has just dropped the chunk's
        // buffer. Dropping `own` then unpins the chunk, so the lock is released before.
        drop(chunks);
        Ok(report)
    }
}

impl Drop for Pool {
    /// Logs, in debug builds, that buffers still exist.
    fn drop(&mut self) {
        if cfg!(debug_assertions)
            && let Ok(report) = self.report()
            && report.buffers > 0
        {
            log::warn!(
                "a pool is dropped before {} of its buffers ({} bytes), which stay valid and keep their memory \
                 pinned: drop buffers first",
                report.buffers,
                report.used_bytes
            );
        }
    }
}
