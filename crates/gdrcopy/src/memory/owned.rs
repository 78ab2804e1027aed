//! Mapped GPU memory together with its allocation.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;

use gdrcopy_core::sys::fork::Owner;
use gdrcopy_core::types::{GPU_PAGE_SIZE as PAGE, MapFlag, PinFlags};

use crate::access::{Mapped, MappedSlice, sealed};
use crate::error::{Error, GdrError, Result};
use crate::gdr::Gdr;
use crate::mapping::Mapping;
use crate::memory::device::DeviceMemory;

/// The options by which memory is pinned and mapped.
///
/// ```
/// use gdrcopy::{MapFlag, PinFlags, memory::MapOptions};
/// let options = MapOptions::default().pin_flags(PinFlags::FORCE_PCIE).map_flag(MapFlag::WriteCombining);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct MapOptions {
    pin_flags: PinFlags,
    map_flag: MapFlag,
}

impl MapOptions {
    /// Pins with these flags.
    pub fn pin_flags(mut self, flags: PinFlags) -> MapOptions {
        self.pin_flags = flags;
        self
    }

    /// Maps with this flag.
    pub fn map_flag(mut self, flag: MapFlag) -> MapOptions {
        self.map_flag = flag;
        self
    }
}

/// GPU memory that is pinned and mapped. Dropping it unmaps and unpins the memory, then frees it. [`Gdr::map_owned`]
/// makes it without `unsafe`.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::memory::{CudaAllocator, DeviceAllocator, MapOptions};
/// use gdrcopy::{Gdr, Mapped};
/// let memory = CudaAllocator::new(0)?.allocate(1 << 20)?;
/// let mapping = Gdr::open()?.map_owned(memory, MapOptions::default())?;
/// mapping.write(0, b"straight into GPU memory")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OwnedMapping<M: DeviceMemory = Box<dyn DeviceMemory>> {
    // Fields are dropped in this order, so the memory is unmapped and unpinned before it is freed.
    mapping: Mapping,
    memory: Kept<M>,
}

/// Memory that is freed when this value is dropped, but not in a forked child, because it belongs to the parent.
struct Kept<M> {
    memory: ManuallyDrop<M>,
    owner: Owner,
}

impl<M> Kept<M> {
    fn new(memory: M) -> Kept<M> {
        Kept { memory: ManuallyDrop::new(memory), owner: Owner::current() }
    }

    fn into_inner(self) -> M {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the memory is taken only once, because `this` is never dropped.
        unsafe { ManuallyDrop::take(&mut this.memory) }
    }
}

impl<M> Drop for Kept<M> {
    fn drop(&mut self) {
        if self.owner.is_current() {
            // SAFETY: the memory is dropped only here.
            unsafe { ManuallyDrop::drop(&mut self.memory) }
        }
    }
}

/// Returns the device addresses of the whole GPU pages in the memory, or an error if there are none.
pub(crate) fn whole_pages(memory: &dyn DeviceMemory) -> Result<Range<u64>> {
    let start = memory.address();
    let end = start.checked_add(memory.len() as u64).ok_or(GdrError::RangeOverflow)? / PAGE * PAGE;
    let start = start.checked_next_multiple_of(PAGE);
    let start = start.ok_or(GdrError::RangeOverflow)?;
    match start < end {
        true => Ok(start..end),
        false => Err(GdrError::EmptyRange.into()),
    }
}

impl Gdr {
    /// Pins and maps all of this memory, and takes ownership of it. The memory is freed when the mapping is dropped, or
    /// after an error.
    ///
    /// # Errors
    /// The errors of [`Gdr::pin`] and [`Pin::map`](crate::Pin::map).
    pub fn map_owned<M: DeviceMemory + 'static>(&self, memory: M, options: MapOptions) -> Result<OwnedMapping<M>> {
        let start = memory.address();
        let end = start.checked_add(memory.len() as u64).ok_or(GdrError::RangeOverflow)?;
        OwnedMapping::of_range(self, memory, start..end, options)
    }
}

impl<M: DeviceMemory> OwnedMapping<M> {
    /// Pins and maps `range`, which is inside `memory`.
    pub(crate) fn of_range(gdr: &Gdr, memory: M, range: Range<u64>, options: MapOptions) -> Result<OwnedMapping<M>> {
        let start = memory.address();
        assert!(start <= range.start && range.end - start <= memory.len() as u64);
        let memory = Kept::new(memory);
        let len = (range.end - range.start) as usize;
        // SAFETY: the range is part of `memory`, which lives until the mapping is gone: contract of `DeviceMemory`.
        let pin = unsafe { gdr.pin(range.start, len, options.pin_flags) }?;
        Ok(OwnedMapping { mapping: pin.map(len, options.map_flag)?, memory })
    }

    /// Unmaps and unpins the memory, and returns it.
    ///
    /// # Errors
    /// The error of munmap, together with the unchanged mapping.
    #[expect(clippy::result_large_err, reason = "an error returns what it was called with")]
    pub fn into_memory(self) -> std::result::Result<M, (Self, Error)> {
        let OwnedMapping { mapping, memory } = self;
        match mapping.unmap() {
            Ok(()) => Ok(memory.into_inner()),
            Err((mapping, error)) => Err((OwnedMapping { mapping, memory }, error)),
        }
    }

    pub(crate) fn owner(&self) -> Owner {
        self.memory.owner
    }
}

impl<M: DeviceMemory> sealed::Sealed for OwnedMapping<M> {}

impl<M: DeviceMemory> Mapped for OwnedMapping<M> {
    #[inline]
    fn as_slice(&self) -> MappedSlice<'_> {
        self.mapping.as_slice()
    }
}

impl<M: DeviceMemory> fmt::Debug for OwnedMapping<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{:#x}", self.device_address(), self.len())
    }
}
