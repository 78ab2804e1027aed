//! A range of mapped GPU memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use gdrcopy_core::copy;
use gdrcopy_core::error::{Error, Result};
use gdrcopy_core::routines::Item;
use gdrcopy_core::sys::fork::Owner;
use gdrcopy_core::sys::mmap::Region;
use gdrcopy_core::types::MappingType;

/// A range of mapped GPU memory, borrowed from its mapping.
///
/// It is a pointer and a length: copying it copies no memory. Threads may use one slice at the same time; where
/// they write the same bytes, or one writes what another reads, the bytes are a mix of both, and words of 1, 2,
/// 4 or 8 naturally aligned bytes stay whole.
#[derive(Clone, Copy)]
pub struct MappedSlice<'m> {
    /// Invariant: `start..start + len` is mapped for `'m`, in the process `owner`, and accepts the accesses of
    /// `kind`.
    start: *mut u8,
    len: usize,
    /// Of the byte at `start`.
    device_address: u64,
    mapping_type: MappingType,
    kind: MappingType,
    owner: Owner,
    region: PhantomData<&'m Region>,
}

// SAFETY: the addresses are valid in every thread. All accesses are atomic or in assembly; so accesses of several threads
// are no data race.
unsafe impl Send for MappedSlice<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for MappedSlice<'_> {}

impl<'m> MappedSlice<'m> {
    /// `len` bytes of the region from `head` on, which must be inside.
    #[inline]
    pub(crate) fn of_region(
        region: &'m Region,
        head: usize,
        len: usize,
        device_address: u64,
        mapping_type: MappingType,
    ) -> MappedSlice<'m> {
        assert!(head <= region.len() && len <= region.len() - head);
        // Cached memory gets the accesses of device memory: `memcpy`, which C programs get, is a data race
        // in Rust's model where another thread writes.
        let kind = match mapping_type {
            MappingType::Caching => MappingType::Device,
            other => other,
        };
        MappedSlice {
            start: region.address().wrapping_add(head),
            len,
            device_address,
            mapping_type,
            kind,
            owner: region.owner(),
            region: PhantomData,
        }
    }

    /// Bytes in it.
    #[inline]
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// CPU address of its first byte. Using it is unsafe: the mapping must be alive, and accesses must suit
    /// the memory type.
    #[inline]
    pub fn as_mut_ptr(self) -> *mut u8 {
        self.start
    }

    /// Device address of its first byte, for GPU kernels and CUDA.
    #[inline]
    pub fn device_address(self) -> u64 {
        self.device_address
    }

    /// How the CPU caches it.
    #[inline]
    pub fn mapping_type(self) -> MappingType {
        self.mapping_type
    }

    /// The bytes in `range`.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`] if they are not all in this slice.
    #[inline]
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<MappedSlice<'m>> {
        let start = match range.start_bound() {
            Bound::Included(&start) => Some(start),
            Bound::Excluded(&before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.checked_add(1),
            Bound::Excluded(&end) => Some(end),
            Bound::Unbounded => Some(self.len),
        };
        let (Some(offset), Some(end)) = (start, end) else {
            return Err(self.outside(usize::MAX, usize::MAX));
        };
        let len = end.checked_sub(offset);
        let len = len.ok_or_else(|| self.outside(offset, 0))?;
        let start = self.place(offset, len)?;
        Ok(MappedSlice {
            start,
            len,
            device_address: self.device_address + offset as u64,
            ..self
        })
    }

    /// The bytes before `middle`, and those from there on.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`] if `middle` is beyond the end.
    #[inline]
    pub fn split_at(self, middle: usize) -> Result<(MappedSlice<'m>, MappedSlice<'m>)> {
        Ok((self.slice(..middle)?, self.slice(middle..)?))
    }

    /// Copies `src` to the GPU memory from byte `offset` on. A release, and pushed out on return.
    ///
    /// Each byte is stored once. 1, 2, 4 or 8 naturally aligned bytes are a single store.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`], [`Error::ForkedChild`]; nothing is written then.
    #[inline]
    pub fn write(self, offset: usize, src: &[u8]) -> Result<()> {
        self.owner.check()?;
        let dst = self.place(offset, src.len())?;
        // SAFETY: `place` has found the bytes inside the slice, which is mapped and of type `kind`: invariant.
        unsafe { copy::to_mapping(self.kind, dst, src.as_ptr(), src.len()) };
        Ok(())
    }

    /// Copies the GPU memory from byte `offset` on to `dst`. An acquire; the bytes are no older than the call.
    ///
    /// 1, 2, 4 or 8 naturally aligned bytes are a single load.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`], [`Error::ForkedChild`]; nothing is read then.
    #[inline]
    pub fn read(self, offset: usize, dst: &mut [u8]) -> Result<()> {
        self.owner.check()?;
        let src = self.place(offset, dst.len())?;
        // SAFETY: as in `write`.
        unsafe { copy::from_mapping(self.kind, dst.as_mut_ptr(), src, dst.len()) };
        Ok(())
    }

    /// Reads many places at once: each item's bytes are copied from its offset on. One fence comes before all loads,
    /// which overlap on write-combining memory; on device memory, each load of 8 bytes takes its own round trip. How
    /// many overlap depends on the addresses: see [`Words`](crate::Words#where-to-put-flags).
    ///
    /// An item is not read by a single load, however small: flags that must be one transaction are read by
    /// [`Word::load`](crate::Word::load). See [`Words`](crate::Words) for many flags in different places.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`] if any item is not inside, [`Error::ForkedChild`]; nothing is read then.
    pub fn read_many(self, items: &mut [(usize, &mut [u8])]) -> Result<()> {
        self.owner.check()?;
        for (offset, dst) in items.iter() {
            self.place(*offset, dst.len())?;
        }
        let count = items.len();
        let item = |n: usize| {
            let (offset, dst) = &mut items[n];
            Item {
                dst: dst.as_mut_ptr(),
                src: self.start.wrapping_add(*offset),
                len: dst.len(),
            }
        };
        // SAFETY: as in `write`; `place` was called above.
        unsafe { copy::gather(self.kind, count, item) };
        Ok(())
    }

    /// Returns when all earlier writes of this thread to this GPU have arrived there: reads one byte back,
    /// which follows them over PCIe. Takes as long as a read.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`] if the slice is empty, [`Error::ForkedChild`].
    #[inline]
    pub fn flush(self) -> Result<()> {
        self.owner.check()?;
        let byte = self.place(0, 1)?;
        // SAFETY: as in `write`.
        unsafe { copy::flush(byte) };
        Ok(())
    }

    #[inline]
    pub(super) fn kind(self) -> MappingType {
        self.kind
    }

    #[inline]
    pub(super) fn owner(self) -> Owner {
        self.owner
    }

    /// Address of the `len` bytes from `offset` on.
    #[inline]
    pub(super) fn place(self, offset: usize, len: usize) -> Result<*mut u8> {
        match self.len.checked_sub(offset) {
            Some(room) if len <= room => Ok(self.start.wrapping_add(offset)),
            _ => Err(self.outside(offset, len)),
        }
    }

    #[cold]
    pub(super) fn outside(self, offset: usize, len: usize) -> Error {
        let room = self.len;
        Error::OutOfMapping { offset, len, room }
    }
}

impl fmt::Debug for MappedSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}+{:#x}", self.start, self.len)
    }
}
