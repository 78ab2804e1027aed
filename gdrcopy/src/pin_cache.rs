//! Pins and mappings that are kept for later use of the same memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::gdr::Gdr;
use crate::mapping::Mapping;
use gdrcopy_core::error::{Error, Result};
use gdrcopy_core::sync::Mutex;
use gdrcopy_core::sys::cuda::{self, Driver};
use gdrcopy_core::sys::fork::Owner;
use gdrcopy_core::types::cuda_version::OLDEST;
use gdrcopy_core::types::{MapFlag, PinFlags};

/// Keeps pins and mappings, so that the next use of the same range costs two calls to CUDA in place of a pin and
/// a map.
///
/// An entry is a range and the CUDA buffer ids of its first and last byte
/// (`CU_POINTER_ATTRIBUTE_BUFFER_ID`). CUDA never uses an id again, so memory that was freed and allocated again
/// at the same address is pinned again. A range of more than two allocations (cuMemMap) is not recognized if only
/// inner ones have changed: call [`PinCache::invalidate`] then.
///
/// The cache keeps the memory of its entries pinned, also after it was freed: until another allocation is asked
/// for at these addresses, or the entry is the least recently used one of more bytes than the cache is for, or
/// [`PinCache::invalidate`]. Threads share the cache by reference.
///
/// ```
/// # mod gpu { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs")); }
/// # gpu::run(|gpu| {
/// # let device_pointer = || gpu.device_pointer();
/// use gdrcopy::{Gdr, Mapped, PinCache};
/// let cache = PinCache::new(&Gdr::open()?, 64 << 20)?;
/// let address = device_pointer(); // from cuMemAlloc
/// // SAFETY: the memory stays allocated, and is used by this mapping only.
/// let mapping = unsafe { cache.get(address, 1 << 20) }?;
/// mapping.write(0, b"data")?;
/// drop(mapping);
/// cache.invalidate(address, 1 << 20)?; // before cuMemFree
/// # Ok(())
/// # });
/// ```
#[derive(Debug)]
pub struct PinCache {
    gdr: Gdr,
    driver: &'static Driver,
    capacity: u64,
    entries: Mutex<Entries>,
    owner: Owner,
}

/// The use of a cache. Made by [`PinCache::report`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinCacheReport {
    /// Mappings in the cache.
    pub entries: usize,
    /// Their bytes, as asked for.
    pub bytes: u64,
    /// Calls that were served from the cache.
    pub hits: u64,
    /// Calls that pinned.
    pub misses: u64,
}

/// Device address and length in bytes.
type Range = (u64, usize);
/// CUDA's ids of the allocations of the first and of the last byte.
type BufferIds = (u64, u64);
/// Mappings that the cache gives up. They are dropped, and perhaps unpinned, when the lock is free again.
type Removed = Vec<Entry>;

#[derive(Debug)]
struct Entry {
    ids: BufferIds,
    mapping: Arc<Mapping>,
    /// When it was last used, in calls.
    used: u64,
}

#[derive(Debug, Default)]
struct Entries {
    by_range: BTreeMap<Range, Entry>,
    bytes: u64,
    hits: u64,
    misses: u64,
}

impl PinCache {
    /// A cache for at most `capacity` bytes of mappings. Loads CUDA, from 11.0 on, and initializes it.
    ///
    /// # Errors
    /// [`Error::NoCuda`], [`Error::CudaTooOld`], [`Error::Cuda`] with what cuInit answered.
    pub fn new(gdr: &Gdr, capacity: usize) -> Result<PinCache> {
        let driver = cuda::load(OLDEST)?;
        driver.init()?;
        Ok(PinCache {
            gdr: gdr.clone(),
            driver,
            capacity: capacity as u64,
            entries: Mutex::default(),
            owner: Owner::current(),
        })
    }

    /// A mapping of the `len` bytes from device address `address` on, from the cache or new. Byte 0 of it is the
    /// byte at `address`. One of more bytes than the cache is for is not kept. It is shared with everyone that has asked for the range, and valid after it has left
    /// the cache.
    ///
    /// # Safety
    /// As for [`Gdr::pin`], until the returned mapping is dropped by its last owner other than the cache.
    ///
    /// # Errors
    /// [`Error::EmptyRange`] for length 0; [`Error::ForkedChild`]; [`Error::Cuda`] for addresses that CUDA does
    /// not know; as for [`Gdr::pin`] and [`Pin::map`](crate::Pin::map).
    pub unsafe fn get(&self, address: u64, len: usize) -> Result<Arc<Mapping>> {
        self.owner.check()?;
        let range = (address, len);
        let ids = self.buffer_ids(range)?;
        if let Some(mapping) = self.entries.lock().get(range, ids) {
            return Ok(mapping);
        }
        // Unpinned before the pin, because BAR1 may be short.
        let removed = self.entries.lock().make_room(self.capacity, range, ids);
        drop(removed);
        // SAFETY: contract of this function.
        let pin = unsafe { self.gdr.pin(address, len, PinFlags::DEFAULT) }?;
        let mapping = Arc::new(pin.map(len, MapFlag::Default)?);
        let mut entries = self.entries.lock();
        let removed = entries.make_room(self.capacity, range, ids);
        let mapping = entries.insert(self.capacity, range, ids, mapping);
        drop(entries);
        drop(removed);
        Ok(mapping)
    }

    /// Forgets all mappings with bytes of this range. Those that are not in use are unmapped and unpinned on return.
    /// To be called before the memory is freed, so that it can be used for something else at once.
    ///
    /// # Errors
    /// [`Error::ForkedChild`].
    pub fn invalidate(&self, address: u64, len: usize) -> Result<()> {
        self.owner.check()?;
        let removed = self
            .entries
            .lock()
            .remove(|range, _| overlap(range, (address, len)));
        drop(removed);
        Ok(())
    }

    /// Forgets all mappings. Those that are not in use are unmapped and unpinned on return.
    ///
    /// # Errors
    /// [`Error::ForkedChild`].
    pub fn clear(&self) -> Result<()> {
        self.owner.check()?;
        let removed = self.entries.lock().remove(|_, _| true);
        drop(removed);
        Ok(())
    }

    /// Its use now.
    ///
    /// # Errors
    /// [`Error::ForkedChild`].
    pub fn report(&self) -> Result<PinCacheReport> {
        self.owner.check()?;
        let entries = self.entries.lock();
        Ok(PinCacheReport {
            entries: entries.by_range.len(),
            bytes: entries.bytes,
            hits: entries.hits,
            misses: entries.misses,
        })
    }

    fn buffer_ids(&self, (address, len): Range) -> Result<BufferIds> {
        let to_last = (len as u64).checked_sub(1).ok_or(Error::EmptyRange)?;
        let last = address.checked_add(to_last).ok_or(Error::RangeOverflow)?;
        Ok((
            self.driver.buffer_id(address)?,
            self.driver.buffer_id(last)?,
        ))
    }
}

impl Entries {
    /// The mapping of exactly this range of these allocations.
    fn get(&mut self, range: Range, ids: BufferIds) -> Option<Arc<Mapping>> {
        let now = self.hits + self.misses + 1;
        let entry = self
            .by_range
            .get_mut(&range)
            .filter(|entry| entry.ids == ids)?;
        entry.used = now;
        self.hits += 1;
        Some(Arc::clone(&entry.mapping))
    }

    /// Adds a mapping unless it is too large, and returns it, or that which another thread has added since
    /// [`Entries::get`].
    fn insert(
        &mut self,
        capacity: u64,
        range: Range,
        ids: BufferIds,
        mapping: Arc<Mapping>,
    ) -> Arc<Mapping> {
        self.misses += 1;
        let (bytes, used) = (range.1 as u64, self.hits + self.misses);
        if bytes > capacity {
            return mapping;
        }
        let entry = self.by_range.entry(range).or_insert_with(|| {
            self.bytes += bytes;
            Entry { ids, mapping, used }
        });
        Arc::clone(&entry.mapping)
    }

    /// Removes what is in the place of these allocations without being them; then, if the range can fit at all,
    /// the least recently used, until it fits.
    fn make_room(&mut self, capacity: u64, range: Range, ids: BufferIds) -> Removed {
        let mut removed = self.remove(|other, entry| overlap(other, range) && entry.ids != ids);
        let rest = capacity.checked_sub(range.1 as u64);
        while rest.is_some_and(|rest| self.bytes > rest) && !self.by_range.contains_key(&range) {
            let oldest = self.by_range.values().map(|entry| entry.used).min();
            removed.extend(self.remove(|_, entry| Some(entry.used) == oldest));
        }
        removed
    }

    fn remove(&mut self, which: impl Fn(Range, &Entry) -> bool) -> Removed {
        let found = self
            .by_range
            .iter()
            .filter(|&(&range, entry)| which(range, entry));
        let found: Vec<Range> = found.map(|(&range, _)| range).collect();
        self.bytes -= found.iter().map(|&(_, len)| len as u64).sum::<u64>();
        let removed = found.iter().filter_map(|range| self.by_range.remove(range));
        removed.collect()
    }
}

fn overlap((a, a_len): Range, (b, b_len): Range) -> bool {
    // Ranges that exist do not reach past the end of the address space; those of callers may.
    let end = |start: u64, len| start.saturating_add(len as u64);
    a.max(b) < end(a, a_len).min(end(b, b_len))
}
