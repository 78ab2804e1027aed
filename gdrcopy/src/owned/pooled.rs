//! Words and signals that keep their memory, from a pool.
#![forbid(unsafe_code)]

use std::sync::Arc;

use bytemuck::Pod;
use gdrcopy_core::error::{Error, Result};

use crate::access::MappedSlice;
use crate::channel::{Counter, Flag, Ring, RingReceiver, RingSender};
use crate::owned::handle::{Owned, OwnedArray, OwnedCounter, OwnedFlag, OwnedWord};
use crate::owned::view::View;
use crate::pool::Pool;

/// Words, arrays and signals that keep a buffer of the pool, and may outlive the pool itself. Each takes 64 bytes or a
/// multiple of that, so that no two share a line. On return, the GPU sees what they start with.
impl Pool {
    /// A word, with this value. A `T` that is not of 1, 2, 4 or 8 bytes does not compile.
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

    /// An array of `len` elements, all zeros. Many flags that are polled at once are best in one, by
    /// [`Array::gather`](crate::Array::gather).
    ///
    /// # Errors
    /// The errors of [`Pool::alloc`]; [`Error::RangeOverflow`] for more bytes than an address space has.
    pub fn array<T: Pod>(&self, len: usize) -> Result<OwnedArray<T>> {
        let bytes = len.checked_mul(size_of::<T>());
        self.own(bytes.ok_or(Error::RangeOverflow)?, |memory| memory.array(0, len))
    }

    /// A flag, clear.
    ///
    /// # Errors
    /// The errors of [`Pool::alloc`].
    pub fn flag(&self) -> Result<OwnedFlag> {
        self.own(size_of::<u32>(), |memory| memory.word(0).map(Flag::new))
    }

    /// A counter at 0, which this process waits for; or writes, by [`Owned::into_writer`].
    ///
    /// # Errors
    /// The errors of [`Pool::alloc`].
    pub fn counter(&self) -> Result<OwnedCounter> {
        self.own(size_of::<u64>(), |memory| memory.word(0).map(Counter::new))
    }

    /// A ring with this process as the producer and a GPU kernel, which is given
    /// [`RingSender::device_address`], as the consumer.
    ///
    /// ```
    /// # mod gpu { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs")); }
    /// # gpu::run(|gpu| {
    /// use gdrcopy::memory::CudaAllocator;
    /// use gdrcopy::channel::{RingReceiver, RingSender};
    /// use gdrcopy::{Gdr, Pool};
    ///
    /// struct Link {
    ///     requests: RingSender<'static, [u32; 4]>,
    ///     answers: RingReceiver<'static, [u32; 4]>,
    /// }
    ///
    /// let pool = Pool::new(&Gdr::open()?, CudaAllocator::new(0)?);
    /// let mut link = Link { requests: pool.ring_to_gpu(64)?, answers: pool.ring_from_gpu(64)? };
    /// std::thread::spawn(move || link.requests.send(&[1, 2, 3, 4], None)).join().expect("no panic")?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// The errors of [`Pool::alloc`].
    ///
    /// # Panics
    /// As [`Ring::new`].
    pub fn ring_to_gpu<T: Pod>(&self, slots: u32) -> Result<RingSender<'static, T>> {
        self.ring(slots).map(Owned::into_sender)
    }

    /// A ring with a GPU kernel, which is given [`RingReceiver::device_address`], as the producer and this process as the
    /// consumer.
    ///
    /// # Errors
    /// The errors of [`Pool::alloc`].
    ///
    /// # Panics
    /// As [`Ring::new`].
    pub fn ring_from_gpu<T: Pod>(&self, slots: u32) -> Result<RingReceiver<'static, T>> {
        self.ring(slots).map(Owned::into_receiver)
    }

    fn ring<T: Pod>(&self, slots: u32) -> Result<Owned<Ring<'static, T>>> {
        let buffer = self.alloc(Ring::<T>::bytes(slots))?;
        Owned::new(Arc::new(buffer), |memory| Ring::new(memory, slots))
    }

    /// A view of a buffer of this many bytes, which are zeros before `view` makes it.
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
