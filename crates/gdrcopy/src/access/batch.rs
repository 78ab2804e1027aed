//! Batches of writes, which share one fence.

use std::fmt;
use std::marker::PhantomData;

use bytemuck::{Pod, bytes_of};
use gdrcopy_core::copy;

use crate::access::slice::MappedSlice;
use crate::access::word::Word;
use crate::error::Result;

impl<'m> MappedSlice<'m> {
    /// Starts a batch of writes to this slice and to others. One fence at the end of the batch replaces the fence of
    /// each write.
    ///
    /// # Errors
    /// [`GdrError::ForkedChild`](crate::GdrError::ForkedChild).
    #[inline]
    pub fn batch(self) -> Result<Batch<'m>> {
        self.owner().check()?;
        copy::begin_batch();
        Ok(Batch { slice: self, not_send: PhantomData })
    }
}

/// Writes that are pushed out together. [`MappedSlice::batch`] starts a batch.
///
/// Each write makes its stores immediately. The stores have no order among each other, and the CPU combines those to
/// the same cache line of 64 bytes. [`Batch::commit`] pushes them out; so does dropping the batch. A flag that says
/// that the data of a batch is there must be written after the commit. A write of one naturally aligned word is a
/// single store. [`MappedSlice::write_many`] makes writes that are all known at the start, in less time.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// # let mapping = gpu.mapping()?;
/// use gdrcopy::Mapped;
/// let mut batch = mapping.batch()?;
/// batch.write(0, b"head")?;
/// batch.write(4096, b"body")?;
/// batch.commit();
/// mapping.word::<u32>(8192)?.store(1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a batch ends where it is dropped"]
#[doc(alias("gdrx_begin", "gdrx_write_unfenced", "gdrx_fence"))]
pub struct Batch<'m> {
    slice: MappedSlice<'m>,
    /// A batch cannot be sent to another thread, because the fence at its end orders only the stores of its own thread.
    not_send: PhantomData<*mut ()>,
}

impl<'m> Batch<'m> {
    /// Writes `src` to the slice that started the batch, from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`](crate::Error::OutOfMapping), [`GdrError::ForkedChild`](crate::GdrError::ForkedChild);
    /// nothing is written then, and the batch can still be used.
    #[inline]
    pub fn write(&mut self, offset: usize, src: &[u8]) -> Result<()> {
        self.write_to(self.slice, offset, src)
    }

    /// Writes `src` to `slice`, from byte `offset` on. The slice may be of any mapping that lives as long as the batch.
    ///
    /// # Errors
    /// The errors of [`Batch::write`].
    #[inline]
    pub fn write_to(&mut self, slice: MappedSlice<'m>, offset: usize, src: &[u8]) -> Result<()> {
        slice.owner().check()?;
        let dst = slice.place(offset, src.len())?;
        // SAFETY: `place` has checked that the bytes are inside the slice, which is mapped and may be accessed like
        // memory of the type `accessed_as`.
        unsafe { copy::write_unfenced(slice.accessed_as(), dst, src.as_ptr(), src.len()) };
        Ok(())
    }

    /// Writes a value of plain data from byte `offset` on, as [`Batch::write`] does.
    ///
    /// # Errors
    /// The errors of [`Batch::write`].
    #[inline]
    pub fn write_value<T: Pod>(&mut self, offset: usize, value: &T) -> Result<()> {
        self.write(offset, bytes_of(value))
    }

    /// Writes `value` to a word by one store. The word may be of any mapping that lives as long as the batch.
    ///
    /// # Panics
    /// In a forked child of the process that made the mapping.
    #[inline]
    pub fn store<T: Pod>(&mut self, word: Word<'m, T>, value: T) {
        word.store_unfenced(value);
    }

    /// Pushes all writes out to the GPU, before any later write of the thread.
    #[inline]
    pub fn commit(self) {}
}

impl Drop for Batch<'_> {
    #[inline]
    fn drop(&mut self) {
        copy::end_batch();
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({:?})", self.slice)
    }
}
