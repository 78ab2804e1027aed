//! Pins and mappings that are kept for later use of the same memory.
//!
//! `entries` decides what is kept, without access to memory; `slice` is what callers get.

mod entries;
mod slice;

use std::sync::Arc;

pub use entries::PinCacheReport;
pub use slice::CachedSlice;

use gdrcopy_core::error::Result;
use gdrcopy_core::sync::Mutex;
use gdrcopy_core::sys::cuda::{self, Driver};
use gdrcopy_core::sys::fork::Owner;
use gdrcopy_core::types::cuda_version::OLDEST;
use gdrcopy_core::types::{MapFlag, PinFlags};

use crate::gdr::Gdr;
use crate::mapping::Mapping;
use crate::pin::Pin;

use entries::{BufferIds, DeviceRange, Entries};

/// Keeps pins and mappings. The next use of the same range, or of a part of it, costs two calls to CUDA in place of a
/// pin and a map.
///
/// An entry is a range and the CUDA buffer ids of its first and last byte
/// (`CU_POINTER_ATTRIBUTE_BUFFER_ID`). CUDA never uses an id again, so memory that was freed and allocated again
/// at the same address is pinned again. It does not recognize that in a range of more than two allocations (cuMemMap)
/// only inner ones have changed. Call [`PinCache::invalidate`] then.
///
/// The entries pin at most `capacity` bytes, counted in whole pages, which are 64 KiB with gdrdrv, and the host's with
/// dma-bufs. To make room, the cache unpins the least recently used entries that are not in use. It also does so where
/// BAR1, or the mappings or file descriptors that the process may have, are used up. Where only entries in use are
/// left, [`PinCache::get`] returns the driver's error, and does not keep a mapping for which the capacity has no room.
///
/// The cache keeps the memory of its entries pinned, even after it was freed. It does so until another allocation is
/// asked for at these addresses, the entry makes room for others, or [`PinCache::invalidate`]. A larger range replaces
/// the entries inside of it. A part of a range of two allocations is served from it if the driver keeps pins of freed
/// memory ([`Gdr::is_persistent`]). Otherwise it is pinned in its place. Threads share the cache by reference; they pin
/// one after another.
///
/// ```
/// # mod gpu { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs")); }
/// # gpu::run(|gpu| {
/// # let device_pointer = || gpu.device_pointer();
/// use gdrcopy::{Gdr, Mapped, PinCache};
/// let cache = PinCache::new(&Gdr::open()?, 64 << 20)?;
/// let address = device_pointer(); // from cuMemAlloc
/// // SAFETY: the memory stays allocated, and is used by this slice only.
/// let slice = unsafe { cache.get(address, 1 << 20) }?;
/// slice.write(0, b"data")?;
/// drop(slice);
/// cache.invalidate(address, 1 << 20)?; // before cuMemFree
/// # Ok(())
/// # });
/// ```
#[derive(Debug)]
pub struct PinCache {
    gdr: Gdr,
    driver: &'static Driver,
    entries: Mutex<Entries<Mapping>>,
    /// Held while a range is pinned. Threads that need the same one pin it once. An entry that one unpins to make room
    /// is gone when the next one pins.
    pinning: Mutex<()>,
    owner: Owner,
}

impl PinCache {
    /// A cache that pins at most `capacity` bytes. Loads CUDA, from 11.0 on, and initializes it.
    ///
    /// # Errors
    /// [`Error::NoCuda`](crate::Error::NoCuda), [`Error::CudaTooOld`](crate::Error::CudaTooOld), [`Error::Cuda`](crate::Error::Cuda) with what cuInit answered; as for
    /// [`Gdr::is_persistent`].
    pub fn new(gdr: &Gdr, capacity: usize) -> Result<PinCache> {
        let driver = cuda::load(OLDEST)?;
        driver.init()?;
        let pins_outlive_memory = gdr.is_persistent()?;
        Ok(PinCache {
            gdr: gdr.clone(),
            driver,
            entries: Mutex::new(Entries::new(capacity as u64, pins_outlive_memory)),
            pinning: Mutex::default(),
            owner: Owner::current(),
        })
    }

    /// The `len` bytes from device address `address` on, from the cache or of a new mapping. Mappings are shared by
    /// all that have asked for bytes of them, and valid after they have left the cache. One that takes more than the
    /// capacity is not kept.
    ///
    /// # Safety
    /// The contract of [`Gdr::pin`] with this range, until the slice and its clones are dropped.
    ///
    /// # Errors
    /// [`Error::EmptyRange`](crate::Error::EmptyRange) for length 0; [`Error::RangeOverflow`](crate::Error::RangeOverflow); [`Error::ForkedChild`](crate::Error::ForkedChild); [`Error::Cuda`](crate::Error::Cuda) for
    /// addresses that CUDA does not know; as for [`Gdr::pin`] and [`Pin::map`](crate::Pin::map).
    pub unsafe fn get(&self, address: u64, len: usize) -> Result<CachedSlice> {
        self.owner.check()?;
        let range = DeviceRange::new(address, len)?;
        let ids = BufferIds { first: self.driver.buffer_id(range.start)?, last: self.driver.buffer_id(range.last())? };
        let (mapping, offset) = match self.find(range, ids) {
            Some(found) => found,
            // SAFETY: contract of this function.
            None => self.find_or_map(range, ids, || unsafe { self.gdr.pin(address, len, PinFlags::DEFAULT) })?,
        };
        Ok(CachedSlice::new(mapping, offset, len))
    }

    /// Forgets all mappings with bytes of this range. Those that are not in use are unmapped and unpinned on return.
    /// To be called before the memory is freed, so that it can be used for something else at once.
    ///
    /// # Errors
    /// [`Error::ForkedChild`](crate::Error::ForkedChild).
    pub fn invalidate(&self, address: u64, len: usize) -> Result<()> {
        self.owner.check()?;
        // Ranges that exist do not reach past the end of the address space; those of callers may.
        let end = address.saturating_add(len as u64);
        if let Ok(range) = DeviceRange::new(address, (end - address) as usize) {
            let removed = self.entries.lock().invalidate(range);
            drop(removed);
        }
        Ok(())
    }

    /// Forgets all mappings. Those that are not in use are unmapped and unpinned on return.
    ///
    /// # Errors
    /// [`Error::ForkedChild`](crate::Error::ForkedChild).
    pub fn clear(&self) -> Result<()> {
        self.invalidate(0, usize::MAX)
    }

    /// Its use now.
    ///
    /// # Errors
    /// [`Error::ForkedChild`](crate::Error::ForkedChild).
    pub fn report(&self) -> Result<PinCacheReport> {
        self.owner.check()?;
        Ok(self.entries.lock().report())
    }

    /// A mapping in the cache, and where in it the range starts.
    fn find(&self, range: DeviceRange, ids: BufferIds) -> Option<(Arc<Mapping>, usize)> {
        self.entries.lock().get(range, ids)
    }

    #[cold]
    fn find_or_map(
        &self,
        range: DeviceRange,
        ids: BufferIds,
        pin: impl Fn() -> Result<Pin>,
    ) -> Result<(Arc<Mapping>, usize)> {
        let needed = range.len_in_pages(self.gdr.page_size())?;
        let _pinning = self.pinning.lock();
        // Another thread may have pinned it.
        if let Some(found) = self.find(range, ids) {
            return Ok(found);
        }
        // Unpinned before the pin, because BAR1 may be short.
        let removed = self.entries.lock().make_room(range, ids, needed);
        drop(removed);
        let (mapping, pinned) = self.map_with_evictions(pin)?;
        let mapping = Arc::new(mapping);
        let kept = Arc::clone(&mapping);
        let removed = self.entries.lock().insert(range, ids, pinned, kept);
        drop(removed);
        Ok((mapping, 0))
    }

    /// A new mapping of a new pin, and the bytes that it takes. Unpins idle entries as long as there is no room.
    fn map_with_evictions(&self, pin: impl Fn() -> Result<Pin>) -> Result<(Mapping, u64)> {
        let map = || -> Result<(Mapping, u64)> {
            let pin = pin()?;
            let mapping = pin.map(pin.len(), MapFlag::Default)?;
            Ok((mapping, pin.info()?.mapped_size))
        };
        // Doubled each time, because each attempt costs system calls.
        let mut count = 1;
        loop {
            match map() {
                Err(error) if error.is_shortage() => {
                    let removed = self.entries.lock().evict(count);
                    if removed.is_empty() {
                        return Err(error);
                    }
                    log::debug!("unpins {} ranges: {error}", removed.len());
                    count *= 2;
                }
                answer => return answer,
            }
        }
    }
}
