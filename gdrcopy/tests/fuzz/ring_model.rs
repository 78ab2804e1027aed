//! The memory of a ring and the numbers of its end, by its documentation and its header.
#![forbid(unsafe_code)]

use bytemuck::{Pod, bytes_of};

use crate::memory::Memory;
use crate::types::value;

/// Sequence words that a receiver reads at a time.
const POLLED: usize = 256;

/// Why a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Corrupted,
    TimedOut,
}

/// One end of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingModel {
    pub(crate) start: u64,
    pub(crate) slots: u32,
    /// The size of a message.
    size: usize,
    /// The number of the next message.
    next: u32,
    /// Free slots that a sender knows of.
    room: u32,
}

/// Bytes of a ring, for a line, the words in whole lines, and the messages.
pub(crate) fn bytes_of_ring<T>(slots: u32) -> u128 {
    64 + (u128::from(slots) * 4).next_multiple_of(64) + u128::from(slots) * size_of::<T>() as u128
}

impl RingModel {
    /// That of `Ring::attach`.
    pub(crate) fn new<T>(start: u64, slots: u32, next: u32) -> RingModel {
        RingModel { start, slots, size: size_of::<T>(), next, room: 0 }
    }

    /// Empties it, as `Ring::new` and `Ring::starting_at` do.
    pub(crate) fn clear(&mut self, memory: &Memory) {
        memory.set(self.start, &self.next.to_ne_bytes());
        for position in (0..self.slots).map(|ahead| self.next.wrapping_add(ahead)) {
            let empty = position.wrapping_add(1).wrapping_sub(self.slots);
            memory.set(self.sequence(position), &empty.to_ne_bytes());
        }
        self.room = self.slots;
    }

    fn sequence(&self, position: u32) -> u64 {
        self.start + 64 + u64::from(position % self.slots) * 4
    }

    fn message(&self, position: u32) -> u64 {
        let messages = 64 + (u64::from(self.slots) * 4).next_multiple_of(64);
        self.start + messages + u64::from(position % self.slots) * self.size as u64
    }

    pub(crate) fn update_room(&mut self, memory: &Memory) -> Result<u32, Failure> {
        let used = self.next.wrapping_sub(word(memory, self.start));
        let room = self.slots.checked_sub(used);
        self.room = room.ok_or(Failure::Corrupted)?;
        Ok(self.room)
    }

    pub(crate) fn send<T: Pod>(&mut self, memory: &Memory, messages: &[T]) -> Result<usize, Failure> {
        if (self.room as usize) < messages.len() {
            self.update_room(memory)?;
        }
        let count = messages.len().min(self.room as usize);
        for message in &messages[..count] {
            memory.set(self.message(self.next), bytes_of(message));
            let full = self.next.wrapping_add(1);
            memory.set(self.sequence(self.next), &full.to_ne_bytes());
            self.next = full;
        }
        self.room -= count as u32;
        Ok(count)
    }

    /// The messages that are there, at most `most`.
    pub(crate) fn receive(&mut self, memory: &Memory, most: usize) -> Result<Vec<Vec<u8>>, Failure> {
        let mut messages = Vec::new();
        let polled = most.min(POLLED).min(self.slots as usize);
        for position in (0..polled as u32).map(|ahead| self.next.wrapping_add(ahead)) {
            let (found, full) = (word(memory, self.sequence(position)), position.wrapping_add(1));
            if found == full.wrapping_sub(self.slots) {
                break;
            }
            if found != full {
                return Err(Failure::Corrupted);
            }
            messages.push(memory.bytes(self.message(position), self.size));
        }
        if !messages.is_empty() {
            self.next = self.next.wrapping_add(messages.len() as u32);
            memory.set(self.start, &self.next.to_ne_bytes());
        }
        Ok(messages)
    }

    /// A value that another may write, mostly a number that could be right, mostly near the
    /// start.
    pub(crate) fn garbage(&self, numbers: &mut crate::sizes::Numbers) -> (usize, [u8; 4]) {
        let bytes = (self.message(0) - self.start) as usize + self.slots as usize * self.size;
        let near = [0, 1, self.slots, self.next, u32::MAX, value(numbers.next())];
        let span = [64, bytes / 4][numbers.below(2)].min(bytes / 4);
        let at = 4 * numbers.below(span);
        let number = near[numbers.below(6)].wrapping_add(numbers.below(3) as u32);
        (at, number.to_ne_bytes())
    }
}

fn word(memory: &Memory, start: u64) -> u32 {
    u32::from_ne_bytes(memory.bytes(start, 4).try_into().expect("4 bytes"))
}
