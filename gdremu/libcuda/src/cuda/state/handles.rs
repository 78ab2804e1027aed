//! Opaque handles: numbers that are never reused, so that a stale one is detected.

use std::collections::BTreeMap;

/// Live objects of one kind by handle. `KIND` makes the handles of different kinds different.
#[derive(Debug)]
pub(crate) struct Handles<T, const KIND: usize> {
    created: usize,
    live: BTreeMap<usize, T>,
}

impl<T, const KIND: usize> Handles<T, KIND> {
    pub(crate) const fn new() -> Self {
        Handles {
            created: 0,
            live: BTreeMap::new(),
        }
    }

    /// Stores an object and returns its handle.
    pub(crate) fn add(&mut self, object: T) -> usize {
        self.created += 1;
        let handle = (KIND << 40) | (self.created << 8);
        self.live.insert(handle, object);
        handle
    }

    pub(crate) fn get(&self, handle: usize) -> Option<&T> {
        self.live.get(&handle)
    }

    pub(crate) fn get_mut(&mut self, handle: usize) -> Option<&mut T> {
        self.live.get_mut(&handle)
    }

    pub(crate) fn remove(&mut self, handle: usize) -> Option<T> {
        self.live.remove(&handle)
    }

    /// Drops the objects of which `keep` does not hold.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.live.retain(|_, object| keep(object));
    }
}
