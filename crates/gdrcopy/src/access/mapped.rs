//! The interface of all owners of mapped GPU memory.
#![forbid(unsafe_code)]

use std::ops::RangeBounds;
use std::sync::Arc;

use bytemuck::Pod;
use gdrcopy_core::types::MappingType;

use crate::access::array::Array;
use crate::access::batch::Batch;
use crate::access::slice::MappedSlice;
use crate::access::word::Word;
use crate::error::Result;

/// Mapped GPU memory that has an owner ([`Mapping`](crate::Mapping), [`OwnedMapping`](crate::memory::OwnedMapping),
/// [`PoolBuffer`](crate::PoolBuffer), [`OwnedSlice`](crate::owned::OwnedSlice)).
///
/// Its methods are those of [`MappedSlice`], of all of the memory, with their order and errors. A `dyn Mapped` has
/// those without a type parameter, and [`Mapped::as_slice`] for the others. Only types of this crate are `Mapped`, and
/// an `Arc` of one is.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// # let mapping = gpu.mapping()?;
/// use gdrcopy::{Mapped, Result};
/// fn post(memory: &dyn Mapped, message: &[u8]) -> Result<()> {
///     memory.write(64, message)?;
///     memory.as_slice().word::<u64>(0)?.store(message.len() as u64);
///     Ok(())
/// }
/// post(&mapping, b"to any owner")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[expect(clippy::missing_errors_doc, reason = "those of the slice's methods")]
#[expect(clippy::len_without_is_empty, reason = "only a slice can be empty")]
pub trait Mapped: sealed::Sealed + Send + Sync {
    /// All of the mapped memory.
    fn as_slice(&self) -> MappedSlice<'_>;

    /// The number of mapped bytes.
    #[inline]
    fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// [`MappedSlice::as_mut_ptr`].
    #[inline]
    fn as_mut_ptr(&self) -> *mut u8 {
        self.as_slice().as_mut_ptr()
    }

    /// Device address of its first byte, for GPU kernels and CUDA.
    #[inline]
    fn device_address(&self) -> u64 {
        self.as_slice().device_address()
    }

    /// The type of the mapping, which says how the CPU caches the memory.
    #[inline]
    fn mapping_type(&self) -> MappingType {
        self.as_slice().mapping_type()
    }

    /// [`MappedSlice::slice`].
    #[inline]
    fn slice(&self, range: impl RangeBounds<usize>) -> Result<MappedSlice<'_>>
    where
        Self: Sized,
    {
        self.as_slice().slice(range)
    }

    /// [`MappedSlice::split_at`].
    #[inline]
    fn split_at(&self, middle: usize) -> Result<(MappedSlice<'_>, MappedSlice<'_>)> {
        self.as_slice().split_at(middle)
    }

    /// [`MappedSlice::write`].
    #[inline]
    #[doc(alias = "gdr_copy_to_mapping")]
    fn write(&self, offset: usize, src: &[u8]) -> Result<()> {
        self.as_slice().write(offset, src)
    }

    /// [`MappedSlice::read`].
    #[inline]
    #[doc(alias = "gdr_copy_from_mapping")]
    fn read(&self, offset: usize, dst: &mut [u8]) -> Result<()> {
        self.as_slice().read(offset, dst)
    }

    /// [`MappedSlice::fill`].
    fn fill(&self, byte: u8) -> Result<()> {
        self.as_slice().fill(byte)
    }

    /// [`MappedSlice::read_vec`].
    fn read_vec(&self, offset: usize, len: usize) -> Result<Vec<u8>> {
        self.as_slice().read_vec(offset, len)
    }

    /// [`MappedSlice::word`].
    #[inline]
    fn word<T: Pod>(&self, offset: usize) -> Result<Word<'_, T>>
    where
        Self: Sized,
    {
        self.as_slice().word(offset)
    }

    /// [`MappedSlice::array`].
    #[inline]
    fn array<T: Pod>(&self, offset: usize, len: usize) -> Result<Array<'_, T>>
    where
        Self: Sized,
    {
        self.as_slice().array(offset, len)
    }

    /// [`MappedSlice::batch`].
    #[inline]
    fn batch(&self) -> Result<Batch<'_>> {
        self.as_slice().batch()
    }

    /// [`MappedSlice::read_many`].
    #[inline]
    #[doc(alias = "gdrx_read_many")]
    fn read_many(&self, items: &mut [(usize, &mut [u8])]) -> Result<()> {
        self.as_slice().read_many(items)
    }

    /// [`MappedSlice::write_many`].
    #[inline]
    #[doc(alias = "gdrx_write_many")]
    fn write_many(&self, items: &[(usize, &[u8])]) -> Result<()> {
        self.as_slice().write_many(items)
    }

    /// [`MappedSlice::flush`].
    #[doc(alias = "gdrx_flush")]
    fn flush(&self) -> Result<()> {
        self.as_slice().flush()
    }
}

impl<M: Mapped + ?Sized> Mapped for Arc<M> {
    #[inline]
    fn as_slice(&self) -> MappedSlice<'_> {
        (**self).as_slice()
    }
}

impl<M: Mapped + ?Sized> sealed::Sealed for Arc<M> {}

pub(crate) mod sealed {
    /// The trait is sealed, so that methods can be added to it.
    pub trait Sealed {}
}
