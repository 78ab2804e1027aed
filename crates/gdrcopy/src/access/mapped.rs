//! The interface of all types that own mapped GPU memory.
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
/// Its methods call those of [`MappedSlice`] on the slice of all mapped bytes, with the same memory order and errors. A
/// `dyn Mapped` has the methods without a type parameter; call the others on the slice that [`Mapped::as_slice`]
/// returns. Only types of this crate, and an `Arc` of one of them, are `Mapped`.
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
    /// Returns all of the mapped memory as a slice.
    fn as_slice(&self) -> MappedSlice<'_>;

    /// The number of mapped bytes.
    #[inline]
    fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Calls [`MappedSlice::as_mut_ptr`] on the slice of all mapped bytes.
    #[inline]
    fn as_mut_ptr(&self) -> *mut u8 {
        self.as_slice().as_mut_ptr()
    }

    /// Device address of the first byte, for GPU kernels and CUDA.
    #[inline]
    fn device_address(&self) -> u64 {
        self.as_slice().device_address()
    }

    /// The type of the mapping, which says how the CPU caches the memory.
    #[inline]
    fn mapping_type(&self) -> MappingType {
        self.as_slice().mapping_type()
    }

    /// Calls [`MappedSlice::slice`] on the slice of all mapped bytes.
    #[inline]
    fn slice(&self, range: impl RangeBounds<usize>) -> Result<MappedSlice<'_>>
    where
        Self: Sized,
    {
        self.as_slice().slice(range)
    }

    /// Calls [`MappedSlice::split_at`] on the slice of all mapped bytes.
    #[inline]
    fn split_at(&self, middle: usize) -> Result<(MappedSlice<'_>, MappedSlice<'_>)> {
        self.as_slice().split_at(middle)
    }

    /// Calls [`MappedSlice::write`] on the slice of all mapped bytes.
    #[inline]
    #[doc(alias = "gdr_copy_to_mapping")]
    fn write(&self, offset: usize, src: &[u8]) -> Result<()> {
        self.as_slice().write(offset, src)
    }

    /// Calls [`MappedSlice::read`] on the slice of all mapped bytes.
    #[inline]
    #[doc(alias = "gdr_copy_from_mapping")]
    fn read(&self, offset: usize, dst: &mut [u8]) -> Result<()> {
        self.as_slice().read(offset, dst)
    }

    /// Calls [`MappedSlice::fill`] on the slice of all mapped bytes.
    fn fill(&self, byte: u8) -> Result<()> {
        self.as_slice().fill(byte)
    }

    /// Calls [`MappedSlice::read_vec`] on the slice of all mapped bytes.
    fn read_vec(&self, offset: usize, len: usize) -> Result<Vec<u8>> {
        self.as_slice().read_vec(offset, len)
    }

    /// Calls [`MappedSlice::word`] on the slice of all mapped bytes.
    #[inline]
    fn word<T: Pod>(&self, offset: usize) -> Result<Word<'_, T>>
    where
        Self: Sized,
    {
        self.as_slice().word(offset)
    }

    /// Calls [`MappedSlice::array`] on the slice of all mapped bytes.
    #[inline]
    fn array<T: Pod>(&self, offset: usize, len: usize) -> Result<Array<'_, T>>
    where
        Self: Sized,
    {
        self.as_slice().array(offset, len)
    }

    /// Calls [`MappedSlice::batch`] on the slice of all mapped bytes.
    #[inline]
    fn batch(&self) -> Result<Batch<'_>> {
        self.as_slice().batch()
    }

    /// Calls [`MappedSlice::read_many`] on the slice of all mapped bytes.
    #[inline]
    #[doc(alias = "gdrx_read_many")]
    fn read_many(&self, items: &mut [(usize, &mut [u8])]) -> Result<()> {
        self.as_slice().read_many(items)
    }

    /// Calls [`MappedSlice::write_many`] on the slice of all mapped bytes.
    #[inline]
    #[doc(alias = "gdrx_write_many")]
    fn write_many(&self, items: &[(usize, &[u8])]) -> Result<()> {
        self.as_slice().write_many(items)
    }

    /// Calls [`MappedSlice::flush`] on the slice of all mapped bytes.
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
    /// Only this crate can implement this trait, which `Mapped` requires. So methods can be added to `Mapped` later.
    pub trait Sealed {}
}
