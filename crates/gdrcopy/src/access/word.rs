//! One word of mapped GPU memory.

use std::fmt;
use std::marker::PhantomData;
use std::time::Instant;

use bytemuck::Pod;

use gdrcopy_core::copy;
use gdrcopy_core::sys::fork::Owner;
use gdrcopy_core::sys::mmap::Region;
use gdrcopy_core::types::MappingType;

use crate::access::slice::MappedSlice;
use crate::error::{Error, Result};

impl<'m> MappedSlice<'m> {
    /// Returns the `T` at byte `offset`, for loads and stores of one PCIe transaction each.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`]; [`Error::UnalignedWord`] if the word's address is not a multiple of its size.
    #[inline]
    pub fn word<T: Pod>(self, offset: usize) -> Result<Word<'m, T>> {
        Word::of_slice(self, offset)
    }
}

/// A naturally aligned word of mapped GPU memory. Each access is one PCIe transaction, so the GPU and the CPU see
/// old or new values, never a mix.
///
/// `T` is any plain data of 1, 2, 4 or 8 bytes ([`bytemuck::Pod`]), such as integers, floats, and structs of them
/// without padding. Other sizes do not compile. The address of a word is a multiple of its size.
///
/// A word can be a flag or a counter between this process and a GPU kernel. The GPU kernel needs release stores and
/// acquire loads at system scope, or relaxed ones with `__threadfence_system()`.
///
/// A word is not an `AtomicU32`, because the GPU is not a thread of this program, and write-combining memory has no
/// atomic read-modify-write.
///
/// Three bytes are not a word:
///
/// ```compile_fail,E0080
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// # let mapping = gpu.mapping()?;
/// use gdrcopy::Mapped;
/// let color = mapping.word::<[u8; 3]>(0)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Word<'m, T> {
    /// Invariant: a `T` is mapped at this address for `'m`, in the process `owner`, and is aligned to its size.
    at: *mut T,
    device_address: u64,
    accessed_as: MappingType,
    owner: Owner,
    region: PhantomData<&'m Region>,
}

impl<T> Clone for Word<'_, T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Word<'_, T> {}

// SAFETY: the address is valid in every thread, and all accesses to it are atomic.
unsafe impl<T: Pod> Send for Word<'_, T> {}
// SAFETY: for the same reasons as `Send`.
unsafe impl<T: Pod> Sync for Word<'_, T> {}

impl<'m, T: Pod> Word<'m, T> {
    /// Returns the `T` at byte `offset` of a slice.
    #[inline]
    fn of_slice(slice: MappedSlice<'m>, offset: usize) -> Result<Word<'m, T>> {
        const { assert!(matches!(size_of::<T>(), 1 | 2 | 4 | 8), "a word has 1, 2, 4 or 8 bytes") };
        let size = size_of::<T>();
        let at = slice.place(offset, size)?;
        if !at.addr().is_multiple_of(size) {
            return Err(Error::UnalignedWord { offset, size });
        }
        Ok(Word {
            at: at.cast(),
            device_address: slice.device_address() + offset as u64,
            accessed_as: slice.accessed_as(),
            owner: slice.owner(),
            region: PhantomData,
        })
    }

    /// The word's device address, for GPU kernels and CUDA.
    #[inline]
    pub fn device_address(self) -> u64 {
        self.device_address
    }

    /// Reads the word by one load, a PCIe round trip. The load is an acquire. The value is no older than the call.
    ///
    /// # Panics
    /// In a forked child of the process that made the mapping.
    #[doc(alias("gdrx_load_u8", "gdrx_load_u16", "gdrx_load_u32", "gdrx_load_u64"))]
    #[inline]
    pub fn load(self) -> T {
        self.owner.assert();
        // SAFETY: a `T` is mapped at `self.at`, and aligned to its size (invariant).
        unsafe { copy::load(self.at) }
    }

    /// Writes the word by one store. The store is a release, and is pushed out to the GPU before the call returns.
    ///
    /// # Panics
    /// In a forked child of the process that made the mapping.
    #[doc(alias("gdrx_store_u8", "gdrx_store_u16", "gdrx_store_u32", "gdrx_store_u64"))]
    #[inline]
    pub fn store(self, value: T) {
        self.owner.assert();
        // SAFETY: a `T` is mapped at `self.at`, and aligned to its size (invariant).
        unsafe { copy::store(self.at, value) }
    }

    /// Reads the word again and again until `predicate` accepts the value, and returns this value. If `deadline` is
    /// `None`, the call waits forever. Each read is an acquire, so everything that a GPU kernel wrote before it
    /// released the value is visible to later reads by this crate.
    ///
    /// ```
    /// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
    /// # let mapping = gpu.mapping()?;
    /// use gdrcopy::Mapped;
    /// let request = mapping.word::<u32>(0)?;
    /// let answer = mapping.word::<u32>(64)?;
    /// mapping.write(128, b"what to do")?;
    /// request.store(1);
    /// # answer.store(1); // As a GPU kernel does.
    /// answer.spin_until(|value| value == 1, None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TimedOut`] once the deadline has passed. The word is read at least once.
    ///
    /// # Panics
    /// In a forked child, as [`Word::load`] does.
    pub fn spin_until(self, mut predicate: impl FnMut(T) -> bool, deadline: impl Into<Option<Instant>>) -> Result<T> {
        let deadline = deadline.into();
        loop {
            let value = self.load();
            if predicate(value) {
                return Ok(value);
            }
            if let Some(deadline) = deadline
                && Instant::now() >= deadline
            {
                return Err(Error::TimedOut);
            }
        }
    }

    /// The CPU address of the word.
    #[inline]
    pub(super) fn start(self) -> *const u8 {
        self.at.cast_const().cast()
    }

    /// The process that mapped the word.
    pub(super) fn owner(self) -> Owner {
        self.owner
    }

    /// Writes the word by one store without a fence. Only batches call this, and a batch has a fence at its end.
    #[inline]
    pub(super) fn store_unfenced(self, value: T) {
        self.owner.assert();
        // SAFETY: a `T` is mapped at `self.at`, and aligned to its size (invariant).
        unsafe { copy::store_unfenced(self.at, value) }
    }

    pub(super) fn accessed_as(self) -> MappingType {
        self.accessed_as
    }
}

impl<T> fmt::Debug for Word<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.at)
    }
}
