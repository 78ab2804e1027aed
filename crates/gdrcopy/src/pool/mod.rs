//! A pool of small buffers in pinned GPU memory.
//!
//! A chunk owns its memory, its mapping and the lock of its metadata (blocks); a buffer keeps its chunk, and so
//! needs no pool. The pool keeps the chunks that buffers share.
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
/// A pin takes system calls and at least one GPU page of 64 KiB of BAR1. A buffer of a pool takes 64 bytes and a lock.
/// Threads share the pool by reference.
///
/// | buffer | memory |
/// | --- | --- |
/// | below 64 KiB | a part of a GPU page that only such buffers share, in units of 64 bytes |
/// | up to 2 MiB | whole GPU pages of a shared chunk |
/// | above 2 MiB | a chunk of its own, 2 MiB aligned, which is freed with the buffer. In a pool of fixed memory, 2 MiB-aligned pages of that memory |
///
/// The memory of a new buffer is not zeroed, but it has what an earlier buffer or the allocator left there.
/// [`Pool::alloc_zeroed`] writes zeros.
///
/// Shared chunks are kept until [`Pool::trim`] or until the pool and the last of their buffers are dropped.
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
    /// This lock is held while a shared chunk is made, so that threads that wait for one do not each make one.
    growth: Mutex<()>,
    owner: Owner,
}

#[derive(Debug)]
struct Chunks {
    shared: Vec<Arc<Chunk>>,
    /// Chunks of one buffer each, which keeps them.
    own: Vec<Weak<Chunk>>,
}

/// The use of a pool's memory. Made by [`Pool::report`].
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
    /// Chunks that are pinned, each by one pin and one mapping.
    pub chunks: usize,
    /// Buffers in use.
    pub buffers: usize,
    /// Pinned bytes, both in use and free.
    pub pinned_bytes: u64,
    /// Bytes in use, rounded up to lines of 64 bytes or pages of 64 KiB.
    pub used_bytes: u64,
    /// Bytes of the largest free range. Only buffers of at most this size need no other chunk.
    pub largest_free: u64,
}

impl PoolOptions {
    /// A pool that takes memory from the allocator as it needs it, and none now.
    pub fn build(self, gdr: &Gdr, allocator: impl DeviceAllocator + 'static) -> Pool {
        self.pool(gdr, Some(Box::new(allocator)), Vec::new())
    }

    /// A pool of this memory only. Whole GPU pages of it are pinned, now.
    ///
    /// # Errors
    /// [`GdrError::EmptyRange`] if no whole GPU page is in it; as for [`Gdr::pin`](crate::Gdr::pin) and
    /// [`Pin::map`](crate::Pin::map).
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
    /// A pool that takes memory from the allocator as it needs it, and none now, with the default options.
    pub fn new(gdr: &Gdr, allocator: impl DeviceAllocator + 'static) -> Pool {
        Pool::options().build(gdr, allocator)
    }

    /// A pool of this memory only, such as [`RawMemory`](crate::memory::RawMemory), with the default options.
    ///
    /// # Errors
    /// The errors of [`PoolOptions::build_of_memory`].
    pub fn of_memory(gdr: &Gdr, memory: impl DeviceMemory + 'static) -> Result<Pool> {
        Pool::options().build_of_memory(gdr, memory)
    }

    /// Makes a pool that pins or maps in another manner.
    pub fn options() -> PoolOptions {
        PoolOptions::default()
    }

    /// A buffer of `len` bytes, at least 64-byte aligned. Its contents are not specified.
    ///
    /// # Errors
    /// The errors of [`Pool::alloc_aligned`].
    pub fn alloc(&self, len: usize) -> Result<PoolBuffer> {
        self.alloc_aligned(len, 1)
    }

    /// [`Pool::alloc`], then writes zeros.
    ///
    /// # Errors
    /// The errors of [`Pool::alloc_aligned`].
    pub fn alloc_zeroed(&self, len: usize) -> Result<PoolBuffer> {
        let buffer = self.alloc(len)?;
        buffer.fill(0)?;
        Ok(buffer)
    }

    /// A buffer of `len` bytes whose device address is a multiple of `align` bytes, a power of two. Its contents
    /// are not specified.
    ///
    /// # Errors
    /// [`GdrError::EmptyRange`] for length 0; [`Error::InvalidAlignment`]; [`GdrError::ForkedChild`];
    /// [`Error::PoolExhausted`] in a pool of fixed memory. If another chunk is needed, what the allocator answers, and
    /// as for [`Gdr::pin`] and [`Pin::map`](crate::Pin::map).
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
        // Another thread may have made a chunk in the meantime.
        if let Some(buffer) = self.take(len, align) {
            return Ok(buffer);
        }
        let chunk = self.chunk(self.options.chunk_len, align)?;
        let buffer = PoolBuffer::take(&chunk, len, align);
        self.chunks.lock().shared.push(chunk);
        buffer.ok_or(Error::PoolExhausted)
    }

    /// A buffer in a chunk of its own; in a pool of fixed memory, in that memory.
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

    /// A buffer in a shared chunk, if one has room.
    fn take(&self, len: usize, align: u64) -> Option<PoolBuffer> {
        let chunks = self.chunks.lock();
        chunks.shared.iter().find_map(|chunk| PoolBuffer::take(chunk, len, align))
    }

    /// A new chunk of `len` bytes, whole pages, that starts at a multiple of `align`.
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

    /// Unpins and frees the shared chunks that no buffer uses. The memory of a pool of fixed memory stays.
    ///
    /// # Errors
    /// [`GdrError::ForkedChild`].
    pub fn trim(&self) -> Result<()> {
        self.owner.check()?;
        if self.allocator.is_none() {
            return Ok(());
        }
        let mut chunks = self.chunks.lock();
        // Only the pool makes clones, under the lock.
        let unused: Vec<_> = chunks.shared.extract_if(.., |chunk| Arc::strong_count(chunk) == 1).collect();
        drop(chunks);
        drop(unused);
        Ok(())
    }

    /// The use of its memory now. While other threads allocate and drop, the numbers of different chunks may be of
    /// different moments.
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
        // If the thread of its buffer has just dropped a chunk, it is unpinned here, not under the lock.
        drop(chunks);
        Ok(report)
    }
}

impl Drop for Pool {
    /// Reports leaks.
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
