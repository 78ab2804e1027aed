//! The CPU's end of a ring to the GPU.
#![forbid(unsafe_code)]

use std::fmt;
use std::time::Instant;

use bytemuck::{Pod, cast_slice};

use crate::access::spin::spin;
use crate::channel::ring::queue::Ring;
use gdrcopy_core::error::{Error, Result};

/// Sends messages to a GPU kernel. Made by [`Ring::into_sender`].
///
/// Sending costs two store fences, whatever the number of messages. It reads how far the kernel is, for a PCIe
/// round trip, only when by the last value there is no room for all messages.
pub struct RingSender<'m, T> {
    ring: Ring<'m, T>,
    /// The number of the next message.
    sent: u32,
    /// Free slots, by how far the kernel was when that was read last.
    room: u32,
}

/// Messages that are pushed out to GPU memory. Only those may be published.
struct Written(u32);

impl<'m, T: Pod> Ring<'m, T> {
    /// This process produces, the kernel consumes.
    pub fn into_sender(self) -> RingSender<'m, T> {
        RingSender { sent: self.first, room: self.room, ring: self }
    }
}

impl<T: Pod> RingSender<'_, T> {
    /// Sends the first messages, those that there is room for now, and returns their number. A release, so the
    /// kernel that receives one sees it whole, and whatever the thread wrote before.
    ///
    /// # Errors
    /// [`Error::RingCorrupted`], [`Error::ForkedChild`]; nothing is sent then.
    pub fn try_send(&mut self, messages: &[T]) -> Result<usize> {
        if (self.room as usize) < messages.len() {
            self.update_room()?;
        }
        let count = messages.len().min(self.room as usize);
        if count == 0 {
            return Ok(0);
        }
        let written = self.write(&messages[..count])?;
        self.publish(written)?;
        Ok(count)
    }

    /// Sends a message, once there is room. `None` as deadline waits for ever. Ordered as
    /// [`RingSender::try_send`].
    ///
    /// # Errors
    /// [`Error::TimedOut`] once the deadline has passed; as for [`RingSender::try_send`]. The message is not sent
    /// then.
    pub fn send(&mut self, message: &T, deadline: impl Into<Option<Instant>>) -> Result<()> {
        let message = std::slice::from_ref(message);
        spin(deadline.into(), || Ok((self.try_send(message)? == 1).then_some(())))
    }

    /// Waits until the kernel has consumed all messages. An acquire. `None` as deadline waits for ever.
    ///
    /// # Errors
    /// [`Error::TimedOut`] once the deadline has passed; [`Error::RingCorrupted`], [`Error::ForkedChild`].
    pub fn wait_consumed(&mut self, deadline: impl Into<Option<Instant>>) -> Result<()> {
        spin(deadline.into(), || {
            self.update_room()?;
            Ok((self.room == self.ring.positions.slots()).then_some(()))
        })
    }

    /// Device address of the ring, for the kernel's end.
    pub fn device_address(&self) -> u64 {
        self.ring.device_address()
    }

    /// How many messages the ring has room for.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    /// Returns how many messages there is room for now. Reads how far the kernel is, which takes a PCIe round
    /// trip.
    ///
    /// # Errors
    /// [`Error::RingCorrupted`], [`Error::ForkedChild`].
    pub fn free(&mut self) -> Result<u32> {
        self.update_room()?;
        Ok(self.room)
    }

    /// Reads how far the kernel is. An acquire, because it has read the messages whose slots are reused.
    fn update_room(&mut self) -> Result<()> {
        let found = self.ring.consumed.get(0)?;
        let room = self.ring.positions.room(self.sent, found);
        self.room = room.ok_or(Error::RingCorrupted { position: self.sent, found })?;
        Ok(())
    }

    /// Writes messages into their slots and pushes them out.
    fn write(&self, messages: &[T]) -> Result<Written> {
        let slots = self.ring.messages.as_bytes();
        let [to_end, wrapped] = self.ring.positions.runs(self.sent, messages.len());
        let (head, tail) = messages.split_at(to_end.len());
        let mut batch = slots.batch()?;
        batch.write(to_end.start * size_of::<T>(), cast_slice(head))?;
        batch.write(wrapped.start * size_of::<T>(), cast_slice(tail))?;
        batch.commit();
        Ok(Written(messages.len() as u32))
    }

    /// Writes the sequence words, which come after the messages because those are committed.
    fn publish(&mut self, Written(count): Written) -> Result<()> {
        let mut batch = self.ring.sequences.as_bytes().batch()?;
        for _ in 0..count {
            let slot = self.ring.positions.slot(self.sent);
            let sequence = self.ring.sequences.word(slot)?;
            batch.store(sequence, self.ring.positions.full(self.sent));
            self.sent = self.sent.wrapping_add(1);
        }
        batch.commit();
        self.room -= count;
        Ok(())
    }
}

impl<T> fmt::Debug for RingSender<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingSender")
            .field("ring", &self.ring)
            .field("sent", &self.sent)
            .field("room", &self.room)
            .finish()
    }
}
