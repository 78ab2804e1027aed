//! Numbers of a ring's messages, which wrap around, and slots. It touches no memory.
#![forbid(unsafe_code)]

use std::ops::Range;

/// A ring of a power of two of slots, so that a message's slot does not depend on how often its number has
/// wrapped around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Positions {
    slots: u32,
}

impl Positions {
    pub(super) fn new(slots: u32) -> Positions {
        assert!(slots.is_power_of_two(), "the number of slots must be a power of two, not {slots}");
        Positions { slots }
    }

    #[inline]
    pub(super) fn slots(self) -> u32 {
        self.slots
    }

    /// The slot of message `position`.
    #[inline]
    pub(super) fn slot(self, position: u32) -> usize {
        (position & (self.slots - 1)) as usize
    }

    /// The sequence word of message `position` once the message is there.
    #[inline]
    pub(super) fn full(self, position: u32) -> u32 {
        position.wrapping_add(1)
    }

    /// The sequence word in the place of that before, which is that of the message one lap earlier.
    #[inline]
    pub(super) fn empty(self, position: u32) -> u32 {
        self.full(position).wrapping_sub(self.slots)
    }

    /// Slots that the producer may write, when the consumer is at `consumed`. `None` if it cannot be there.
    #[inline]
    pub(super) fn room(self, sent: u32, consumed: u32) -> Option<u32> {
        self.slots.checked_sub(sent.wrapping_sub(consumed))
    }

    /// How many messages from `position` on are there, by their sequence words.
    ///
    /// # Errors
    /// The first word, before a message that is not there, that is of neither this lap nor the last.
    pub(super) fn ready(self, position: u32, sequences: &[u32]) -> Result<u32, u32> {
        let mut ready = 0;
        for &found in sequences {
            let next = position.wrapping_add(ready);
            if found == self.empty(next) {
                break;
            }
            if found != self.full(next) {
                return Err(found);
            }
            ready += 1;
        }
        Ok(ready)
    }

    /// The slots of `count` messages from `position` on, at most all, up to the last slot, then from the first.
    #[inline]
    pub(super) fn runs(self, position: u32, count: usize) -> [Range<usize>; 2] {
        let first = self.slot(position);
        let until_end = count.min(self.slots as usize - first);
        [first..first + until_end, 0..count - until_end]
    }
}
