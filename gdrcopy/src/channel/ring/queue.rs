//! The memory of a ring, which either end uses.
#![forbid(unsafe_code)]

use std::fmt;

use bytemuck::Pod;
use gdrcopy_core::error::Result;

use crate::access::{Array, MappedSlice};
use crate::channel::keeper::Keeper;
use crate::channel::ring::layout;
use crate::channel::ring::positions::Positions;

/// A queue of messages of type `T` in GPU memory, between this process and one GPU kernel. It goes from the CPU to the
/// GPU ([`Ring::into_sender`]) or back ([`Ring::into_receiver`]). `gdrcopy::channel::Ring` in
/// [`DEVICE_HEADER`](crate::channel::DEVICE_HEADER) is the kernel's end. It takes the device address of the same memory,
/// the number of slots and the size of a message.
///
/// Each message has a slot and a sequence word. The producer writes the message, then, in order, the sequence
/// word; it reuses a slot once the consumer has written how far it is. Both sides number messages by 32 bits,
/// which wrap around.
///
/// The memory is best aligned to 64 bytes, and must be to 4. Messages of a multiple of 16 bytes are written and
/// read fastest.
///
/// ```
/// # mod gpu { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs")); }
/// # gpu::run(|gpu| {
/// # let mapping = gpu.mapping()?;
/// use gdrcopy::Mapped;
/// use gdrcopy::channel::Ring;
/// const SLOTS: u32 = 64;
/// let memory = mapping.slice(..Ring::<[u32; 4]>::bytes(SLOTS))?;
/// let mut sender = Ring::<[u32; 4]>::new(memory, SLOTS)?.into_sender();
/// // Launch the kernel that receives, then:
/// sender.send(&[1, 2, 3, 4], None)?;
/// # Ok(())
/// # });
/// ```
pub struct Ring<'m, T> {
    pub(super) positions: Positions,
    /// The number of the next message at this end.
    pub(super) first: u32,
    /// One element, the number of messages that the consumer has taken.
    pub(super) consumed: Array<'m, u32>,
    pub(super) sequences: Array<'m, u32>,
    pub(super) messages: Array<'m, T>,
    /// Slots that are known to be free.
    pub(super) room: u32,
    keeper: Keeper,
}

impl<'m, T: Pod> Ring<'m, T> {
    /// Bytes of GPU memory that a ring takes; `usize::MAX`, which no memory has, for more than that.
    pub const fn bytes(slots: u32) -> usize {
        let messages = (slots as usize).saturating_mul(size_of::<T>());
        layout::messages(slots).saturating_add(messages)
    }

    /// Makes an empty ring at the start of `memory`. On return the GPU can use it.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`](crate::Error::OutOfMapping) for less than [`Ring::bytes`];
    /// [`Error::UnalignedWord`](crate::Error::UnalignedWord) if `memory` is not aligned to 4 bytes;
    /// [`Error::ForkedChild`](crate::Error::ForkedChild).
    ///
    /// # Panics
    /// If `slots` is not a power of two, up to 2^31. A `T` whose size is not a multiple of 4 does not compile.
    pub fn new(memory: MappedSlice<'m>, slots: u32) -> Result<Ring<'m, T>> {
        Ring::starting_at(memory, slots, 0)
    }

    /// [`Ring::new`] with another number than 0 for the first message. The kernel must be given the same. It tests a
    /// kernel with numbers that wrap around.
    ///
    /// # Errors
    /// The errors of [`Ring::new`].
    ///
    /// # Panics
    /// As [`Ring::new`].
    pub fn starting_at(memory: MappedSlice<'m>, slots: u32, first: u32) -> Result<Ring<'m, T>> {
        let mut ring = Ring::attach(memory, slots, first)?;
        let positions = ring.positions;
        ring.consumed.set(0, first)?;
        let mut empty = vec![0; slots as usize];
        for position in (0..slots).map(|ahead| first.wrapping_add(ahead)) {
            empty[positions.slot(position)] = positions.empty(position);
        }
        ring.sequences.write(0, &empty)?;
        memory.flush()?;
        ring.room = slots;
        Ok(ring)
    }

    /// The ring that is at the start of `memory`, as it is, for its other end, or after a restart. Neither reads nor
    /// writes it. `next` is the number of the message that this end sends or receives next. For a new ring it is 0 or
    /// the number given to [`Ring::starting_at`]. A receiver that goes on where another has ended finds it in the
    /// ring's first word.
    ///
    /// ```
    /// # mod gpu { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs")); }
    /// # gpu::run(|gpu| {
    /// # let mapping = gpu.mapping()?;
    /// use gdrcopy::Mapped;
    /// use gdrcopy::channel::Ring;
    /// let mut sender = Ring::<u32>::new(mapping.as_slice(), 64)?.into_sender();
    /// let mut receiver = Ring::<u32>::attach(mapping.as_slice(), 64, 0)?.into_receiver();
    /// sender.send(&5, None)?;
    /// assert_eq!(receiver.pop()?, Some(5));
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMapping`](crate::Error::OutOfMapping), [`Error::UnalignedWord`](crate::Error::UnalignedWord), as
    /// for [`Ring::new`].
    ///
    /// # Panics
    /// As [`Ring::new`].
    pub fn attach(memory: MappedSlice<'m>, slots: u32, next: u32) -> Result<Ring<'m, T>> {
        const {
            assert!(
                size_of::<T>() > 0 && size_of::<T>().is_multiple_of(4),
                "kernels access messages by words of 4 bytes"
            )
        };
        let ring = Ring {
            positions: Positions::new(slots),
            first: next,
            consumed: memory.array(layout::CONSUMED, 1)?,
            sequences: memory.array(layout::SEQUENCES, slots as usize)?,
            messages: memory.array(layout::messages(slots), slots as usize)?,
            room: 0,
            keeper: None,
        };
        ring.consumed.word(0)?; // Its alignment is that of all words.
        Ok(ring)
    }

    /// Device address of its memory, for the kernel's end.
    pub fn device_address(&self) -> u64 {
        self.consumed.as_bytes().device_address() - layout::CONSUMED as u64
    }

    /// How many messages it has room for.
    pub fn capacity(&self) -> u32 {
        self.positions.slots()
    }

    /// Also keeps this.
    pub(crate) fn keep(&mut self, keeper: Keeper) {
        self.keeper = keeper;
    }
}

impl<T> fmt::Debug for Ring<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("positions", &self.positions).field("first", &self.first).finish_non_exhaustive()
    }
}
