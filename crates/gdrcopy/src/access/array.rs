//! An array of plain data in mapped GPU memory.
#![forbid(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use bytemuck::{Pod, bytes_of, bytes_of_mut, cast_slice, cast_slice_mut};

use crate::access::slice::{MappedSlice, start_and_len};
use crate::access::word::Word;
use crate::error::{Error, Result};

impl<'m> MappedSlice<'m> {
    /// Returns the array of `len` elements from byte `offset` on. Elements may have any alignment.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`] if not all elements are in this slice.
    #[inline]
    pub fn array<T: Pod>(self, offset: usize, len: usize) -> Result<Array<'m, T>> {
        let bytes = len.saturating_mul(size_of::<T>());
        Ok(Array::of_slice(self.part(offset, bytes)?, len))
    }
}

/// `len` elements of plain data ([`bytemuck::Pod`]) in mapped GPU memory, such as integers, floats, arrays of these, or
/// structs of these without padding.
#[derive(Clone, Copy)]
pub struct Array<'m, T> {
    bytes: MappedSlice<'m>,
    len: usize,
    elements: PhantomData<T>,
}

impl<'m, T: Pod> Array<'m, T> {
    /// Makes an array of `len` elements from a slice that has exactly their size.
    #[inline]
    pub(super) fn of_slice(bytes: MappedSlice<'m>, len: usize) -> Array<'m, T> {
        Array { bytes, len, elements: PhantomData }
    }

    /// The number of elements.
    #[inline]
    pub fn len(self) -> usize {
        self.len
    }

    /// Returns whether the array has no elements.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Device address of the first element, for GPU kernels and CUDA.
    #[inline]
    pub fn device_address(self) -> u64 {
        self.bytes.device_address()
    }

    /// The memory of the array.
    #[inline]
    pub fn as_bytes(self) -> MappedSlice<'m> {
        self.bytes
    }

    /// Returns the element `index` as a word, for loads and stores of one PCIe transaction each. The element must have
    /// 1, 2, 4 or 8 bytes.
    ///
    /// # Errors
    /// [`Error::OutOfArray`]; [`Error::UnalignedWord`] if the element's address is not a multiple of its size.
    #[inline]
    pub fn word(self, index: usize) -> Result<Word<'m, T>> {
        self.bytes.word(self.offset(index, 1)?)
    }

    /// Reads the element `index`, with the memory order of [`MappedSlice::read`].
    ///
    /// # Errors
    /// [`Error::OutOfArray`], [`GdrError::ForkedChild`](crate::GdrError::ForkedChild).
    #[inline]
    pub fn get(self, index: usize) -> Result<T> {
        let mut value = T::zeroed();
        let offset = self.offset(index, 1)?;
        self.bytes.read(offset, bytes_of_mut(&mut value))?;
        Ok(value)
    }

    /// Writes the element `index`, with the memory order of [`MappedSlice::write`].
    ///
    /// # Errors
    /// [`Error::OutOfArray`], [`GdrError::ForkedChild`](crate::GdrError::ForkedChild); nothing is written then.
    #[inline]
    pub fn set(self, index: usize, value: T) -> Result<()> {
        let offset = self.offset(index, 1)?;
        self.bytes.write(offset, bytes_of(&value))
    }

    /// Reads the elements from `index` on into `values`, with the memory order of [`MappedSlice::read`].
    ///
    /// # Errors
    /// [`Error::OutOfArray`], [`GdrError::ForkedChild`](crate::GdrError::ForkedChild); nothing is read then.
    #[inline]
    pub fn read(self, index: usize, values: &mut [T]) -> Result<()> {
        let offset = self.offset(index, values.len())?;
        self.bytes.read(offset, cast_slice_mut(values))
    }

    /// Writes `values` to the elements from `index` on, with the memory order of [`MappedSlice::write`].
    ///
    /// # Errors
    /// [`Error::OutOfArray`], [`GdrError::ForkedChild`](crate::GdrError::ForkedChild); nothing is written then.
    #[inline]
    pub fn write(self, index: usize, values: &[T]) -> Result<()> {
        let offset = self.offset(index, values.len())?;
        self.bytes.write(offset, cast_slice(values))
    }

    /// Returns the elements in `range` as an array.
    ///
    /// # Errors
    /// [`Error::OutOfArray`] if they are not all in this array.
    #[inline]
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Array<'m, T>> {
        let (index, count) = start_and_len(range, self.len).map_err(|(index, count)| self.outside(index, count))?;
        let offset = self.offset(index, count)?;
        let bytes = self.bytes.part(offset, count * size_of::<T>())?;
        Ok(Array::of_slice(bytes, count))
    }

    /// Reads the element with the index `at[i]` into `values[i]`, for all `i` at once. Order and speed are those of
    /// [`MappedSlice::read_many`]. An index may occur more than once. Even a small element may be read by several
    /// loads; [`Words`](crate::Words) reads each element by one load.
    ///
    /// # Errors
    /// [`Error::OutOfArray`] if any index is outside this array,
    /// [`GdrError::ForkedChild`](crate::GdrError::ForkedChild); nothing is read then.
    ///
    /// # Panics
    /// If `at` and `values` differ in length.
    ///
    /// ```
    /// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
    /// # let mapping = gpu.mapping()?;
    /// use gdrcopy::Mapped;
    /// let rows = mapping.array::<[f32; 16]>(0, 1000)?;
    /// rows.scatter(&[7, 400], &[[0.5; 16], [2.0; 16]])?;
    /// let mut found = [[0.0; 16]; 3];
    /// rows.gather(&[400, 7, 400], &mut found)?;
    /// assert_eq!(found, [[2.0; 16], [0.5; 16], [2.0; 16]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn gather(self, at: &[usize], values: &mut [T]) -> Result<()> {
        self.bytes.gather(self.len, at, values)
    }

    /// Writes `values[i]` to the element with the index `at[i]`, for all `i`, as one [`Batch`](crate::Batch) that is
    /// committed on return. If an index occurs more than once, any of its values may be the one that stays.
    ///
    /// # Errors
    /// [`Error::OutOfArray`] if any index is outside this array,
    /// [`GdrError::ForkedChild`](crate::GdrError::ForkedChild); nothing is written then.
    ///
    /// # Panics
    /// If `at` and `values` differ in length.
    pub fn scatter(self, at: &[usize], values: &[T]) -> Result<()> {
        self.bytes.scatter(self.len, at, values)
    }

    /// Returns the byte offset of the element `index`. Fails if fewer than `count` elements are left from there on.
    #[inline]
    fn offset(self, index: usize, count: usize) -> Result<usize> {
        match self.len.checked_sub(index) {
            // The product does not overflow, because the size of the whole array fits in a usize.
            Some(room) if count <= room => Ok(index * size_of::<T>()),
            _ => Err(self.outside(index, count)),
        }
    }

    #[cold]
    fn outside(self, index: usize, count: usize) -> Error {
        Error::OutOfArray { index, count, len: self.len }
    }
}

impl<T> fmt::Debug for Array<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.fmt(f)
    }
}
