//! A mapping of pinned GPU memory into the CPU's address space.
#![forbid(unsafe_code)]

use std::ops::RangeBounds;

use bytemuck::Pod;

use crate::access::{Array, Batch, MappedSlice, Scalar, Word};
use crate::copy::mixed::Live;
use crate::error::{Error, Result};
use crate::pin_state::MappingGuard;
use crate::sys::mmap::Region;
use crate::types::MappingType;

/// GPU memory at addresses of this process. It keeps its pin, and is unmapped when dropped.
///
/// Threads share it by `&Mapping`. The GPU, and CUDA on its behalf, may write the same memory at any time; so
/// no `&[u8]` of it is ever returned. Copies, words and batches are those of [`MappedSlice`], which lists
/// their order.
///
/// ```compile_fail
/// fn bytes(mapping: &gdrcopy::Mapping) -> &[u8] { mapping }
/// ```
#[derive(Debug)]
pub struct Mapping {
    // Dropped in this order: the addresses first, the pin last.
    region: Region,
    live: Live,
    of_pin: MappingGuard,
    /// Bytes from the start of the region to byte 0.
    head: usize,
    len: usize,
}

impl Mapping {
    pub(crate) fn new(
        region: Region,
        head: usize,
        len: usize,
        mapping_type: MappingType,
        of_pin: MappingGuard,
    ) -> Mapping {
        Mapping {
            region,
            live: Live::new(mapping_type),
            of_pin,
            head,
            len,
        }
    }

    /// Device address of byte 0: [`Pin::address`](crate::Pin::address).
    pub fn device_address(&self) -> u64 {
        self.of_pin.device_address()
    }

    /// CPU address of byte 0. Using it is unsafe: the mapping must be alive, and accesses must suit the
    /// memory type.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.region.address().wrapping_add(self.head)
    }

    /// CPU address of the first mapped page, which is the byte at [`Info::va`](crate::Info::va).
    #[doc(hidden)]
    pub fn first_page(&self) -> *mut u8 {
        self.region.address()
    }

    /// Mapped bytes, as passed to [`Pin::map`](crate::Pin::map).
    #[expect(clippy::len_without_is_empty, reason = "no mapping is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// How the CPU caches it.
    pub fn mapping_type(&self) -> MappingType {
        self.live.kind()
    }

    /// All of it.
    pub fn as_slice(&self) -> MappedSlice<'_> {
        let (address, kind) = (self.device_address(), self.mapping_type());
        MappedSlice::of_region(&self.region, self.head, self.len, address, kind)
    }

    /// [`MappedSlice::slice`] of all of it.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<MappedSlice<'_>> {
        self.as_slice().slice(range)
    }

    /// [`MappedSlice::write`] from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`], [`Error::ForkedChild`]; nothing is written then.
    pub fn write(&self, offset: usize, src: &[u8]) -> Result<()> {
        self.as_slice().write(offset, src)
    }

    /// [`MappedSlice::read`] from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`], [`Error::ForkedChild`]; nothing is read then.
    pub fn read(&self, offset: usize, dst: &mut [u8]) -> Result<()> {
        self.as_slice().read(offset, dst)
    }

    /// [`MappedSlice::word`] of all of it.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`], [`Error::UnalignedWord`].
    pub fn word<T: Scalar>(&self, offset: usize) -> Result<Word<'_, T>> {
        self.as_slice().word(offset)
    }

    /// [`MappedSlice::array`] of `len` elements from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`].
    pub fn array<T: Pod>(&self, offset: usize, len: usize) -> Result<Array<'_, T>> {
        self.as_slice().array(offset, len)
    }

    /// [`MappedSlice::batch`] of all of it.
    ///
    /// # Errors
    /// [`Error::ForkedChild`].
    pub fn batch(&self) -> Result<Batch<'_>> {
        self.as_slice().batch()
    }

    /// [`MappedSlice::read_many`] of all of it.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`], [`Error::ForkedChild`]; nothing is read then.
    pub fn read_many(&self, items: &mut [(usize, &mut [u8])]) -> Result<()> {
        self.as_slice().read_many(items)
    }

    /// [`MappedSlice::flush`].
    ///
    /// # Errors
    /// [`Error::ForkedChild`].
    pub fn flush(&self) -> Result<()> {
        self.as_slice().flush()
    }

    /// Takes the GPU memory away and leaves the addresses reserved, so that a stale pointer into the
    /// mapping raises SIGBUS or SIGSEGV as long as the process lives.
    #[doc(hidden)]
    pub fn retire(mut self) -> std::result::Result<(), (Mapping, Error)> {
        self.region.retire().map_err(|error| (self, error))
    }

    /// Unmaps it.
    ///
    /// # Errors
    /// What munmap returned, with the mapping, which is unchanged.
    pub fn unmap(mut self) -> std::result::Result<(), (Mapping, Error)> {
        self.region.unmap().map_err(|error| (self, error))
    }
}
