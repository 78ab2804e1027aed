//! Words and arrays in memory of a pool. They keep this memory alive.
#![forbid(unsafe_code)]

use std::sync::Arc;

use bytemuck::Pod;

use crate::access::MappedSlice;
use crate::error::{GdrError, Result};
use crate::owned::handle::{Owned, OwnedArray, OwnedWord};
use crate::owned::view::View;
use crate::pool::Pool;

/// Words and arrays that own a buffer of the pool, and may outlive the pool itself. Each takes 64 bytes or a
/// multiple of that, so that no two share a cache line. When these functions return, the GPU sees the initial values.
impl Pool {
    /// Makes a word with this value. A `T` that is not of 1, 2, 4 or 8 bytes does not compile.
    ///
    /// # Errors
    /// The errors of [`Pool::alloc`].
    pub fn word<T: Pod>(&self, value: T) -> Result<OwnedWord<T>> {
        self.own(size_of::<T>(), |memory| {
            let word = memory.word(0)?;
            word.store(value);
            Ok(word)
        })
    }

    /// Makes an array of `len` elements whose bytes are all zero. For many flags that are polled at once, see
    /// [`OwnedWords`](crate::owned::OwnedWords).
    ///
    /// # Errors
    /// The errors of [`Pool::alloc`]; [`GdrError::RangeOverflow`] for more bytes than an address space has.
    pub fn array<T: Pod>(&self, len: usize) -> Result<OwnedArray<T>> {
        let bytes = len.checked_mul(size_of::<T>());
        self.own(bytes.ok_or(GdrError::RangeOverflow)?, |memory| memory.array(0, len))
    }

    /// Allocates a buffer of `bytes` zeros, and makes a view of it by `view`. Returns the view once the GPU sees the
    /// bytes of the buffer.
    fn own<V: View>(
        &self,
        bytes: usize,
        view: impl for<'m> FnOnce(MappedSlice<'m>) -> Result<V::Of<'m>>,
    ) -> Result<Owned<V>> {
        let buffer = self.alloc_zeroed(bytes)?;
        Owned::new(Arc::new(buffer), |memory| {
            let view = view(memory)?;
            memory.flush()?;
            Ok(view)
        })
    }
}
