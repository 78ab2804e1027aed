//! One word of mapped GPU memory.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::time::Instant;

use bytemuck::Pod;

use crate::access::MappedSlice;
use crate::copy;
use crate::error::{Error, Result};
use crate::routines::Item;
use crate::sys::fork::Owner;
use crate::sys::mmap::Region;
use crate::types::MappingType;

/// The types of words: integers and floats of 1, 2, 4 or 8 bytes.
pub trait Scalar: Pod + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! scalars {
    ($($type:ty)+) => { $(impl Scalar for $type {} impl sealed::Sealed for $type {})+ };
}
scalars! { u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 }

/// A naturally aligned word of mapped GPU memory: each access is one PCIe transaction, so the GPU and the CPU
/// see old or new values, never a mix.
///
/// It is no `AtomicU32`: the GPU is no thread of this program, and write-combining memory has no atomic
/// read-modify-write.
///
/// ```compile_fail
/// fn atomic(word: gdrcopy::Word<'_, u32>) -> &std::sync::atomic::AtomicU32 { &word }
/// ```
pub struct Word<'m, T> {
    /// Invariant: a `T` is mapped there for `'m`, in the process `owner`, aligned to its size.
    at: *mut T,
    kind: MappingType,
    owner: Owner,
    region: PhantomData<&'m Region>,
}

impl<T> Clone for Word<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Word<'_, T> {}

// SAFETY: as for `MappedSlice`.
unsafe impl<T: Scalar> Send for Word<'_, T> {}
// SAFETY: as for `MappedSlice`.
unsafe impl<T: Scalar> Sync for Word<'_, T> {}

impl<'m, T: Scalar> Word<'m, T> {
    /// The first `T` of the slice, which starts at byte `offset` of what the caller knows.
    pub(super) fn of_slice(slice: MappedSlice<'m>, offset: usize) -> Result<Word<'m, T>> {
        let size = size_of::<T>();
        let at = slice.place(0, size)?;
        if !at.addr().is_multiple_of(size) {
            return Err(Error::UnalignedWord { offset, size });
        }
        Ok(Word {
            at: at.cast(),
            kind: slice.kind(),
            owner: slice.owner(),
            region: PhantomData,
        })
    }

    /// Reads it by one load. An acquire; the value is no older than the call. Takes a PCIe round trip.
    ///
    /// # Panics
    /// In a forked child of the process that made the mapping.
    #[inline]
    pub fn load(self) -> T {
        self.owner.assert();
        // SAFETY: a `T` is mapped there, and aligned: invariant.
        unsafe { copy::load(self.at) }
    }

    /// Writes it by one store. A release, and pushed out on return.
    ///
    /// # Panics
    /// In a forked child of the process that made the mapping.
    #[inline]
    pub fn store(self, value: T) {
        self.owner.assert();
        // SAFETY: as in `load`.
        unsafe { copy::store(self.at, value) }
    }

    /// Reads it again and again until `predicate` accepts the value, which is returned. `None` as deadline
    /// waits for ever.
    ///
    /// # Errors
    /// [`Error::TimedOut`] once the deadline has passed. The word is read at least once.
    ///
    /// # Panics
    /// As [`Word::load`].
    pub fn spin_until(
        self,
        mut predicate: impl FnMut(T) -> bool,
        deadline: impl Into<Option<Instant>>,
    ) -> Result<T> {
        let deadline = deadline.into();
        loop {
            let value = self.load();
            if predicate(value) {
                return Ok(value);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::TimedOut);
            }
        }
    }

    pub(super) fn owner(self) -> Owner {
        self.owner
    }

    /// [`Word::store`] between the fences of a batch.
    #[inline]
    pub(super) fn store_unfenced(self, value: T) {
        self.owner.assert();
        // SAFETY: as in `load`.
        unsafe { copy::store_unfenced(self.at, value) }
    }

    /// Reads words into the same number of values, between the fences of one read. `kind` is write-combining only
    /// if all their mappings are. The caller has checked the owners.
    pub(super) fn gather(words: &[Self], kind: MappingType, values: &mut [T]) {
        let items = words.iter().zip(values).map(|(word, value)| Item {
            dst: ptr::from_mut(value).cast(),
            src: word.at.cast(),
            len: size_of::<T>(),
        });
        // SAFETY: a `T` is mapped at each word: invariant. Device memory's accesses suit every type of mapping.
        unsafe { copy::gather(kind, items) }
    }

    pub(super) fn kind(self) -> MappingType {
        self.kind
    }
}

impl<T> fmt::Debug for Word<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.at)
    }
}
