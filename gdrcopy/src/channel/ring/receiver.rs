//! The CPU's end of a ring from the GPU.
#![forbid(unsafe_code)]

use std::fmt;
use std::time::Instant;

use bytemuck::{Pod, cast_slice_mut};

use crate::access::spin::spin;
use crate::channel::ring::layout::LINE;
use crate::channel::ring::queue::Ring;
use gdrcopy_core::error::{Error, Result};

/// Sequence words that one gather reads, the 16 lines that the measured core keeps in flight.
const POLLED: usize = 16 * LINE / size_of::<u32>();

/// Receives messages from a GPU kernel. Made by [`Ring::into_receiver`].
///
/// Receiving takes two gathers, one of sequence words and one of messages, each a PCIe round trip or little more for up
/// to 1 KiB. Finding nothing takes one.
pub struct RingReceiver<'m, T> {
    ring: Ring<'m, T>,
    /// The number of the next message.
    received: u32,
    /// Room for the sequence words of a gather.
    sequences: Box<[u32]>,
}

/// Messages whose sequence words show that they are there. Only those may be read.
struct Ready(u32);

impl<'m, T: Pod> Ring<'m, T> {
    /// The kernel produces, this process consumes.
    pub fn into_receiver(self) -> RingReceiver<'m, T> {
        let polled = POLLED.min(self.positions.slots() as usize);
        RingReceiver { received: self.first, ring: self, sequences: vec![0; polled].into() }
    }
}

impl<T: Pod> RingReceiver<'_, T> {
    /// Receives the next messages that are there now, at most 256, into the first of `messages`, and returns their
    /// number. An acquire, so writes of the kernel before it sent them are visible to later reads.
    ///
    /// # Errors
    /// [`Error::RingCorrupted`], [`Error::ForkedChild`]; nothing is received then.
    pub fn try_receive(&mut self, messages: &mut [T]) -> Result<usize> {
        let ready = self.poll(messages.len())?;
        let count = ready.0 as usize;
        if count > 0 {
            self.read(ready, &mut messages[..count])?;
        }
        Ok(count)
    }

    /// [`RingReceiver::try_receive`] that waits until there is a message. `None` as deadline waits for ever.
    ///
    /// # Errors
    /// [`Error::TimedOut`] once the deadline has passed; as for [`RingReceiver::try_receive`].
    ///
    /// # Panics
    /// If there is no place for a message.
    pub fn receive(&mut self, messages: &mut [T], deadline: impl Into<Option<Instant>>) -> Result<usize> {
        assert!(!messages.is_empty(), "a place for a message");
        spin(deadline.into(), || {
            let count = self.try_receive(messages)?;
            Ok((count > 0).then_some(count))
        })
    }

    /// Receives the next message, if it is there now. Ordered as [`RingReceiver::try_receive`], which is faster for many.
    ///
    /// # Errors
    /// The errors of [`RingReceiver::try_receive`].
    pub fn pop(&mut self) -> Result<Option<T>> {
        let mut message = [T::zeroed()];
        let count = self.try_receive(&mut message)?;
        Ok((count == 1).then_some(message[0]))
    }

    /// Device address of the ring, for the kernel's end.
    pub fn device_address(&self) -> u64 {
        self.ring.device_address()
    }

    /// How many messages the ring has room for.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    /// Reads sequence words. An acquire, so messages that are read later are those that the words announce.
    fn poll(&mut self, wanted: usize) -> Result<Ready> {
        let polled = wanted.min(self.sequences.len());
        let sequences = &mut self.sequences[..polled];
        let [to_end, wrapped] = self.ring.positions.runs(self.received, polled);
        let (head, tail) = sequences.split_at_mut(to_end.len());
        self.ring.sequences.as_bytes().read_many(&mut [
            (to_end.start * size_of::<u32>(), cast_slice_mut(head)),
            (wrapped.start * size_of::<u32>(), cast_slice_mut(tail)),
        ])?;
        match self.ring.positions.ready(self.received, sequences) {
            Ok(ready) => Ok(Ready(ready)),
            Err(found) => Err(Error::RingCorrupted { position: self.received, found }),
        }
    }

    /// Reads messages, then releases their slots.
    fn read(&mut self, Ready(count): Ready, messages: &mut [T]) -> Result<()> {
        let [to_end, wrapped] = self.ring.positions.runs(self.received, messages.len());
        let (head, tail) = messages.split_at_mut(to_end.len());
        self.ring.messages.as_bytes().read_many(&mut [
            (to_end.start * size_of::<T>(), cast_slice_mut(head)),
            (wrapped.start * size_of::<T>(), cast_slice_mut(tail)),
        ])?;
        self.received = self.received.wrapping_add(count);
        self.ring.consumed.set(0, self.received)
    }
}

impl<T> fmt::Debug for RingReceiver<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingReceiver")
            .field("ring", &self.ring)
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}
