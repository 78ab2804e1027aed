//! A range of mapped GPU memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use bytemuck::Pod;
use gdrcopy_core::copy;
use gdrcopy_core::routines::{Item, Shape};
use gdrcopy_core::sys::fork::Owner;
use gdrcopy_core::sys::mmap::Region;
use gdrcopy_core::types::MappingType;

use crate::error::{Error, Result};

/// The number of bytes that [`MappedSlice::fill`] writes at a time.
const FILLED: usize = 1024;

/// Returns the start and the length of `range` in a slice of `all` bytes or an array of `all` elements. Does not check
/// that the range ends inside. If it ends before its start or overflows, the error has two numbers for the message.
#[inline]
pub(super) fn start_and_len(
    range: impl RangeBounds<usize>,
    all: usize,
) -> std::result::Result<(usize, usize), (usize, usize)> {
    let start = match range.start_bound() {
        Bound::Included(&start) => Some(start),
        Bound::Excluded(&before) => before.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(all),
    };
    let (Some(start), Some(end)) = (start, end) else {
        return Err((usize::MAX, usize::MAX));
    };
    let len = end.checked_sub(start).ok_or((start, 0))?;
    Ok((start, len))
}

/// A range of mapped GPU memory, borrowed from its mapping.
///
/// A slice is a pointer and a length, so copying a slice copies no memory. Threads may use one slice at the same time.
/// If two threads write the same bytes, a mix of both stays. If one writes while another reads, the reader gets a mix
/// of old and new bytes. Words of 1, 2, 4 or 8 naturally aligned bytes stay whole.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// # let mapping = gpu.mapping()?;
/// use gdrcopy::Mapped;
/// let (head, body) = mapping.split_at(4096)?;
/// body.write(0, b"body")?;
/// head.fill(0)?;
/// assert_eq!(mapping.slice(4096..4100)?.read_vec(0, 4)?, b"body");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("gdrx_attach", "gdrx_attach_mapping"))]
#[derive(Clone, Copy)]
pub struct MappedSlice<'m> {
    /// Invariant: `start..start + len` is mapped for `'m`, in the process `owner`, and may be accessed like memory of
    /// the type `accessed_as`.
    start: *mut u8,
    len: usize,
    /// The device address of the byte at `start`.
    device_address: u64,
    mapping_type: MappingType,
    accessed_as: MappingType,
    owner: Owner,
    region: PhantomData<&'m Region>,
}

// SAFETY: the addresses are valid in every thread. Accesses are atomic or in assembly. Those wider than a word may
// also be volatile. That is no data race here, because this memory is not a Rust allocation.
unsafe impl Send for MappedSlice<'_> {}
// SAFETY: for the same reasons as `Send`.
unsafe impl Sync for MappedSlice<'_> {}

impl<'m> MappedSlice<'m> {
    /// Returns the `len` bytes of the region from byte `head` on. Panics if they are not all inside.
    #[inline]
    pub(crate) fn of_region(
        region: &'m Region,
        head: usize,
        len: usize,
        device_address: u64,
        mapping_type: MappingType,
    ) -> MappedSlice<'m> {
        assert!(head <= region.len() && len <= region.len() - head);
        // Cached memory is accessed like device memory, and not by `memcpy` as in libgdrapi. In Rust's model, `memcpy`
        // would be a data race if another thread wrote the bytes at the same time.
        let accessed_as = match mapping_type {
            MappingType::Caching => MappingType::Device,
            other => other,
        };
        MappedSlice {
            start: region.address().wrapping_add(head),
            len,
            device_address,
            mapping_type,
            accessed_as,
            owner: region.owner(),
            region: PhantomData,
        }
    }

    /// The number of bytes.
    #[inline]
    pub fn len(self) -> usize {
        self.len
    }

    /// Returns whether the slice has no bytes.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// CPU address of the first byte. An access through it is unsafe, because the mapping must be alive, and the access
    /// must suit the memory type.
    #[inline]
    pub fn as_mut_ptr(self) -> *mut u8 {
        self.start
    }

    /// Device address of the first byte, for GPU kernels and CUDA.
    #[inline]
    pub fn device_address(self) -> u64 {
        self.device_address
    }

    /// The type of the mapping, which says how the CPU caches the memory.
    #[inline]
    pub fn mapping_type(self) -> MappingType {
        self.mapping_type
    }

    /// Returns the bytes in `range` as a slice.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`] if they are not all in this slice.
    #[inline]
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<MappedSlice<'m>> {
        let (offset, len) = start_and_len(range, self.len).map_err(|(offset, len)| self.outside(offset, len))?;
        self.part(offset, len)
    }

    /// Returns the `len` bytes from `offset` on as a slice.
    #[inline]
    pub(crate) fn part(self, offset: usize, len: usize) -> Result<MappedSlice<'m>> {
        let start = self.place(offset, len)?;
        Ok(MappedSlice { start, len, device_address: self.device_address + offset as u64, ..self })
    }

    /// Splits the slice into the bytes before `middle` and those from `middle` on.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`] if `middle` is beyond the end.
    #[inline]
    pub fn split_at(self, middle: usize) -> Result<(MappedSlice<'m>, MappedSlice<'m>)> {
        Ok((self.slice(..middle)?, self.slice(middle..)?))
    }

    /// Copies `src` to the GPU memory from byte `offset` on, as a release, and pushes the bytes out to the GPU.
    ///
    /// Each byte is stored once, except in cached mappings, where some bytes can be stored twice. A copy of 1, 2, 4 or
    /// 8 naturally aligned bytes is a single store.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`], [`GdrError::ForkedChild`](crate::GdrError::ForkedChild); nothing is written then.
    #[inline]
    pub fn write(self, offset: usize, src: &[u8]) -> Result<()> {
        self.owner.check()?;
        let dst = self.place(offset, src.len())?;
        // SAFETY: `place` has checked that the bytes are inside the slice, which is mapped and may be accessed like
        // memory of the type `accessed_as` (invariant).
        unsafe { copy::to_mapping_and_return(self.accessed_as, dst, src.as_ptr(), src.len()) };
        Ok(())
    }

    /// Fills `dst` with the GPU memory from byte `offset` on. The copy is an acquire. None of the bytes that it returns
    /// is older than the call.
    ///
    /// A copy of 1, 2, 4 or 8 naturally aligned bytes is a single load.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`], [`GdrError::ForkedChild`](crate::GdrError::ForkedChild); nothing is read then.
    #[inline]
    pub fn read(self, offset: usize, dst: &mut [u8]) -> Result<()> {
        self.owner.check()?;
        let src = self.place(offset, dst.len())?;
        // SAFETY: `place` has checked that the bytes are inside the slice, which is mapped and may be accessed like
        // memory of the type `accessed_as` (invariant).
        unsafe { copy::from_mapping(self.accessed_as, dst.as_mut_ptr(), src, dst.len()) };
        Ok(())
    }

    /// Writes `byte` to all bytes of the slice, as a release. The writes are pushed out on return.
    ///
    /// # Errors
    /// [`GdrError::ForkedChild`](crate::GdrError::ForkedChild); nothing is written then.
    pub fn fill(self, byte: u8) -> Result<()> {
        self.owner.check()?;
        let bytes = [byte; FILLED];
        copy::begin_batch();
        for offset in (0..self.len).step_by(FILLED) {
            let dst = self.start.wrapping_add(offset);
            let len = FILLED.min(self.len - offset);
            // SAFETY: these bytes are inside the slice, which is mapped and may be accessed like memory of the type
            // `accessed_as` (invariant).
            unsafe { copy::write_unfenced(self.accessed_as, dst, bytes.as_ptr(), len) };
        }
        copy::end_batch();
        Ok(())
    }

    /// Returns a new vector with the `len` bytes from byte `offset` on, read as by [`MappedSlice::read`].
    ///
    /// # Errors
    /// [`Error::OutOfMapping`], [`GdrError::ForkedChild`](crate::GdrError::ForkedChild); then nothing is read.
    pub fn read_vec(self, offset: usize, len: usize) -> Result<Vec<u8>> {
        self.place(offset, len)?;
        self.owner.check()?;
        let mut bytes = vec![0; len];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads many places at once. Each item has an offset and the buffer for the bytes from there on. One fence comes
    /// before all loads. On write-combining memory, loads overlap; how many overlap depends on the addresses (see
    /// [`Words`](crate::Words#where-to-put-flags)). On device memory, each load of 8 bytes takes its own round trip.
    ///
    /// Not even a small item is certain to be read by a single load. Read a flag, which must be one transaction, by
    /// [`Word::load`](crate::Word::load), and many flags in different places by [`Words`](crate::Words).
    ///
    /// # Errors
    /// [`Error::OutOfMapping`] if any item is not inside this slice,
    /// [`GdrError::ForkedChild`](crate::GdrError::ForkedChild); nothing is read then.
    pub fn read_many(self, items: &mut [(usize, &mut [u8])]) -> Result<()> {
        let shape = self.check_items(items.iter().map(|(offset, dst)| (*offset, dst.len())))?;
        let count = items.len();
        let items = items.as_mut_ptr();
        let item = move |n: usize| {
            // SAFETY: `n` is less than `count`.
            let (offset, dst) = unsafe { &mut *items.add(n) };
            Item { dst: dst.as_mut_ptr(), src: self.start.wrapping_add(*offset), len: dst.len() }
        };
        // SAFETY: `check_items` has checked that the items are inside the slice, which is mapped and may be accessed
        // like memory of the type `accessed_as` (invariant).
        unsafe { copy::gather(self.accessed_as, shape, count, item) };
        Ok(())
    }

    /// Writes many places at once, with one fence. Each item has an offset and the bytes to write from there on. The
    /// writes are ordered like those of a [`Batch`](crate::Batch) that is committed on return. One call
    /// takes less time than many calls of [`Batch::write`](crate::Batch::write), whose arguments also fill the CPU's
    /// store buffer.
    ///
    /// Only an item that is one naturally aligned word is certain to be written by a single store.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`] if any item is not inside this slice,
    /// [`GdrError::ForkedChild`](crate::GdrError::ForkedChild); nothing is written then.
    // Inlined, so that the caller need not store the offsets and pointers of `items` in memory. Each such store would
    // take the place of a write in the CPU's store buffer (see `Work` in gdrcopy-core).
    #[inline]
    pub fn write_many(self, items: &[(usize, &[u8])]) -> Result<()> {
        let shape = self.check_items(items.iter().map(|(offset, src)| (*offset, src.len())))?;
        let count = items.len();
        let items = items.as_ptr();
        let item = move |n: usize| {
            // SAFETY: `n` is less than `count`.
            let (offset, src) = unsafe { *items.add(n) };
            Item { dst: self.start.wrapping_add(offset), src: src.as_ptr(), len: src.len() }
        };
        copy::begin_batch();
        // SAFETY: `check_items` has checked that the items are inside the slice, which is mapped and may be accessed
        // like memory of the type `accessed_as` (invariant).
        unsafe { copy::write_many_unfenced(self.accessed_as, shape, count, item) };
        copy::end_batch();
        Ok(())
    }

    /// Returns the size and the alignment that items with these offsets and lengths have in common. Fails if an item is
    /// not inside the slice, or in a forked child of the process that has mapped the slice.
    #[inline]
    fn check_items(self, items: impl Iterator<Item = (usize, usize)>) -> Result<Shape> {
        self.owner.check()?;
        let mut first = None;
        let mut is_alike = true;
        let mut addresses = self.start.addr();
        for (offset, len) in items {
            self.place(offset, len)?;
            is_alike &= len == *first.get_or_insert(len);
            addresses |= offset;
        }
        match first {
            Some(len) if is_alike => Ok(Shape::new(len, addresses)),
            _ => Ok(Shape::MIXED),
        }
    }

    /// Treats the slice as an array of `len` elements, and reads those with the indexes `at`, as
    /// [`MappedSlice::read_many`] does.
    pub(super) fn gather<T: Pod>(self, len: usize, at: &[usize], values: &mut [T]) -> Result<()> {
        assert_eq!(at.len(), values.len(), "a value for each index");
        let shape = self.check_elements::<T>(len, at)?;
        let values = values.as_mut_ptr();
        let item = move |n: usize| {
            // SAFETY: `n` is less than the number of indexes.
            let index = unsafe { *at.get_unchecked(n) };
            let src = self.start.wrapping_add(index * size_of::<T>());
            Item { dst: values.wrapping_add(n).cast(), src, len: size_of::<T>() }
        };
        // SAFETY: `check_elements` has checked that the elements are inside the slice, which is mapped and may be
        // accessed like memory of the type `accessed_as` (invariant). `at` and `values` have equal lengths.
        unsafe { copy::gather(self.accessed_as, shape, at.len(), item) };
        Ok(())
    }

    /// Treats the slice as an array of `len` elements, and writes the elements with the indexes `at`, as one batch.
    pub(super) fn scatter<T: Pod>(self, len: usize, at: &[usize], values: &[T]) -> Result<()> {
        assert_eq!(at.len(), values.len(), "a value for each index");
        let shape = self.check_elements::<T>(len, at)?;
        let values = values.as_ptr();
        let item = move |n: usize| {
            // SAFETY: `n` is less than the number of indexes.
            let index = unsafe { *at.get_unchecked(n) };
            let dst = self.start.wrapping_add(index * size_of::<T>());
            Item { dst, src: values.wrapping_add(n).cast(), len: size_of::<T>() }
        };
        copy::begin_batch();
        // SAFETY: `check_elements` has checked that the elements are inside the slice, which is mapped and may be
        // accessed like memory of the type `accessed_as` (invariant). `at` and `values` have equal lengths.
        unsafe { copy::write_many_unfenced(self.accessed_as, shape, at.len(), item) };
        copy::end_batch();
        Ok(())
    }

    /// Returns the size and the alignment that the elements with the indexes `at` have in common. Fails if an index is
    /// not less than `len`, or in a forked child of the process that has mapped the slice.
    #[inline]
    fn check_elements<T>(self, len: usize, at: &[usize]) -> Result<Shape> {
        self.owner.check()?;
        let bytes = len.checked_mul(size_of::<T>());
        assert!(bytes.is_some_and(|bytes| bytes <= self.len));
        for &index in at {
            if index >= len {
                return Err(Error::OutOfArray { index, count: 1, len });
            }
        }
        Ok(Shape::new(size_of::<T>(), self.start.addr() | size_of::<T>()))
    }

    /// Waits until all earlier writes of this thread to this GPU have arrived there. The call reads one byte, and this
    /// read follows the writes over PCIe. So the call takes as long as a read.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`] if the slice is empty, [`GdrError::ForkedChild`](crate::GdrError::ForkedChild).
    #[inline]
    pub fn flush(self) -> Result<()> {
        self.owner.check()?;
        let byte = self.place(0, 1)?;
        // SAFETY: `place` has checked that the byte is inside the slice, which is mapped (invariant).
        unsafe { copy::flush(byte) };
        Ok(())
    }

    #[inline]
    pub(super) fn accessed_as(self) -> MappingType {
        self.accessed_as
    }

    #[inline]
    pub(super) fn owner(self) -> Owner {
        self.owner
    }

    /// Returns the address of the `len` bytes from `offset` on. Fails if they are not all inside the slice.
    #[inline]
    pub(super) fn place(self, offset: usize, len: usize) -> Result<*mut u8> {
        if len <= self.len && offset <= self.len - len {
            Ok(self.start.wrapping_add(offset))
        } else {
            Err(self.outside(offset, len))
        }
    }

    #[cold]
    fn outside(self, offset: usize, len: usize) -> Error {
        Error::OutOfMapping { offset, len, room: self.len }
    }
}

impl fmt::Debug for MappedSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}+{:#x}", self.start, self.len)
    }
}
