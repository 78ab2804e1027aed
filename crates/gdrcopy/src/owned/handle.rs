//! A view together with the owner of its memory.

use std::any::Any;
use std::fmt;
use std::mem;
use std::sync::Arc;

use bytemuck::Pod;

use crate::access::{Array, Mapped, MappedSlice, Word, Words, sealed};
use crate::error::Result;
use crate::owned::view::View;

/// A slice that keeps its memory. This type implements [`Mapped`], so it can be accessed like a mapping.
pub type OwnedSlice = Owned<MappedSlice<'static>>;
/// A word that keeps its memory. [`Pool::word`](crate::Pool::word) and [`Owned::new`] make one.
pub type OwnedWord<T> = Owned<Word<'static, T>>;
/// An array that keeps its memory. [`Pool::array`](crate::Pool::array) and [`Owned::new`] make one.
pub type OwnedArray<T> = Owned<Array<'static, T>>;

/// Many words that keep their memory, for flags that are polled at once. [`Owned::new`] makes them.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use std::sync::Arc;
/// use gdrcopy::memory::CudaAllocator;
/// use gdrcopy::owned::OwnedWords;
/// use gdrcopy::{Gdr, Pool};
///
/// let pool = Pool::new(&Gdr::open()?, CudaAllocator::new(0)?);
/// let buffer = Arc::new(pool.alloc_zeroed(64 * 64)?);
/// let flags = OwnedWords::<u32>::new(buffer, |memory| (0..64).map(|i| memory.word(64 * i)).collect())?;
/// let mut values = [0; 64];
/// flags.load_all(&mut values);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type OwnedWords<T> = Owned<Words<'static, T>>;

/// A view of GPU memory that keeps the memory alive, so this type has no lifetime. [`Owned::view`] borrows the view.
///
/// Clones share the memory. A forked child may not use a view, and frees nothing when it drops one.
pub struct Owned<V: View> {
    /// The view is valid only while `memory` exists, although its type says `'static`. Invariant: values that other
    /// code gets from the view borrow this `Owned`, or keep `memory` alive.
    view: V::Of<'static>,
    memory: Arc<dyn Any + Send + Sync>,
}

impl<V: View> Owned<V> {
    /// Calls `view` with all of the memory, and keeps its result and the memory.
    ///
    /// ```
    /// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
    /// # let mapping = gpu.mapping()?;
    /// use std::sync::Arc;
    /// use gdrcopy::owned::OwnedWord;
    /// let mapping = Arc::new(mapping);
    /// let word = OwnedWord::<u64>::new(mapping.clone(), |memory| memory.word(0))?;
    /// let flag = OwnedWord::<u32>::new(mapping, |memory| memory.word(64))?;
    /// std::thread::spawn(move || {
    ///     word.view().store(7);
    ///     flag.view().store(1);
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of `view`.
    pub fn new<M: Mapped + 'static>(
        memory: Arc<M>,
        view: impl for<'m> FnOnce(MappedSlice<'m>) -> Result<V::Of<'m>>,
    ) -> Result<Owned<V>> {
        let slice = memory.as_slice();
        // SAFETY: the slice is valid while the value in `memory` is borrowed. Until the last clone of `memory` is gone,
        // the value counts as borrowed: it stays where it is, and nothing gets exclusive access to it or takes it out.
        // `view` works for every lifetime, so it can keep the slice only in the view that it returns. That view is kept
        // together with `memory`.
        let slice = unsafe { mem::transmute::<MappedSlice<'_>, MappedSlice<'static>>(slice) };
        let view = view(slice)?;
        Ok(Owned { view, memory })
    }

    /// Returns the view.
    #[inline]
    pub fn view(&self) -> V::Of<'_>
    where
        V: Copy,
    {
        V::shorten(self.view.clone())
    }
}

impl<T: Pod> OwnedWords<T> {
    /// Calls [`Words::get`].
    #[inline]
    pub fn get(&self, index: usize) -> Option<Word<'_, T>> {
        self.view.get(index)
    }

    /// Calls [`Words::load_all`].
    ///
    /// # Panics
    /// Panics if [`Words::load_all`] does.
    pub fn load_all(&self, values: &mut [T]) {
        self.view.load_all(values);
    }
}

impl sealed::Sealed for OwnedSlice {}

impl Mapped for OwnedSlice {
    #[inline]
    fn as_slice(&self) -> MappedSlice<'_> {
        self.view()
    }
}

impl<V: View> Clone for Owned<V> {
    fn clone(&self) -> Owned<V> {
        Owned { view: self.view.clone(), memory: Arc::clone(&self.memory) }
    }
}

impl<V: View> fmt::Debug for Owned<V>
where
    V::Of<'static>: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owned").field(&self.view).finish()
    }
}
