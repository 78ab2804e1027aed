//! Small buffers side by side in one piece of memory, as the CUDA driver lays them out: 512 bytes
//! apart, so that most of them start in the middle of a GPU page and share it with others.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

/// Every buffer starts at a multiple of this.
pub const ALIGN: u64 = 512;

/// Slots of one arena by their offset in it.
#[derive(Clone, Debug)]
pub struct Arena {
    len: u64,
    slots: BTreeMap<u64, Slot>,
}

#[derive(Clone, Debug)]
struct Slot {
    len: u64,
    /// Freed while pinned: what a mapping still shows must not become another buffer's memory.
    retired: bool,
}

impl Arena {
    /// An empty arena of `len` bytes.
    pub fn new(len: u64) -> Self {
        Arena { len, slots: BTreeMap::new() }
    }

    /// Takes room for `len` bytes and returns its offset.
    pub fn take(&mut self, len: u64) -> Option<u64> {
        let len = len.next_multiple_of(ALIGN);
        let mut gap = 0;
        for (&start, slot) in &self.slots {
            if start - gap >= len {
                break;
            }
            gap = start + slot.len;
        }
        if self.len - gap < len {
            return None;
        }
        self.slots.insert(gap, Slot { len, retired: false });
        Some(gap)
    }

    /// Gives a slot back and returns its length. `pinned` only retires it.
    pub fn give(&mut self, offset: u64, pinned: bool) -> u64 {
        let slot = self.slots.get_mut(&offset).expect("a buffer has a slot");
        let len = slot.len;
        if pinned {
            slot.retired = true;
        } else {
            self.slots.remove(&offset);
        }
        len
    }

    /// Drops the retired slots of which `pinned(offset, len)` no longer holds, and returns them.
    pub fn reap(&mut self, mut pinned: impl FnMut(u64, u64) -> bool) -> Vec<(u64, u64)> {
        let dead: Vec<_> = self
            .slots
            .iter()
            .filter(|&(&offset, slot)| slot.retired && !pinned(offset, slot.len))
            .map(|(&offset, slot)| (offset, slot.len))
            .collect();
        for (offset, _) in &dead {
            self.slots.remove(offset);
        }
        dead
    }

    /// Whether no buffer and no retired slot is left.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_at_512_bytes_and_reuses_the_first_gap_that_fits() {
        let mut arena = Arena::new(4096);
        assert_eq!(arena.take(1), Some(0));
        assert_eq!(arena.take(513), Some(512));
        assert_eq!(arena.take(512), Some(1536));
        assert_eq!(arena.give(512, false), 1024);
        assert_eq!(arena.take(1025), Some(2048));
        assert_eq!(arena.take(1024), Some(512));
        assert_eq!(arena.take(1024), None);
        assert_eq!(arena.take(512), Some(3584));
    }

    #[test]
    fn a_retired_slot_is_reused_only_after_its_pins_are_gone() {
        let mut arena = Arena::new(1024);
        arena.take(512);
        arena.take(512);
        arena.give(0, true);
        assert_eq!(arena.take(512), None);
        assert!(arena.reap(|_, _| true).is_empty());
        assert_eq!(arena.reap(|_, _| false), [(0, 512)]);
        assert_eq!(arena.take(512), Some(0));
    }

    #[test]
    fn empty_only_when_every_slot_is_gone() {
        let mut arena = Arena::new(1024);
        arena.take(512);
        arena.give(0, true);
        assert!(!arena.is_empty());
        arena.reap(|_, _| false);
        assert!(arena.is_empty());
    }
}
